// Package argdist shows how often functions are called with which arguments.
package argdist

import (
	"errors"
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh argdist.bpf.c

type options struct {
	Count      probes         `flag:"count,C" arg:"PROBE" help:"count hits by the values of the probe: 'do_sys_openat2(dfd, filename)'; may be given again"`
	Histogram  probes         `flag:"histogram,H" arg:"PROBE" help:"a histogram of the probe's one value: 'vfs_read(count)'; may be given again"`
	Every      flags.Duration `flag:"interval,i" arg:"TIME" help:"time between reports"`
	Cumulative bool           `flag:"cumulative,c" help:"each report is of all since the start, not of its interval"`
	Number     uint64         `flag:"number,n" arg:"N" help:"number of reports"`
	Top        uint64         `flag:"top,T" arg:"N" also:"rows" help:"with -C: show only the N most frequent values of each interval"`
	StringSize int            `flag:"string-size,z" help:"bytes of a string that are looked at"`
}

// probes are given one at a time, as each may have commas.
type probes []string

// UnmarshalText adds one.
func (p *probes) UnmarshalText(text []byte) error {
	*p = append(*p, string(text))
	return nil
}

// String is the default.
func (p *probes) String() string { return "" }

// dataMax is FETCH_DATA_MAX.
const dataMax = 96

// key is struct table_key, counts struct table_value, histKey struct hist_key.
type (
	key struct {
		Target, _ uint32
		Data      [dataMax]byte
	}
	counts  struct{ Count uint64 }
	histKey struct{ Target uint32 }
)

type row struct {
	Count  uint64      `json:"count" col:"COUNT,width=10,right" help:"hits in the interval with these values, with --cumulative since the start"`
	Func   string      `json:"func" col:"FUNC,width=24" help:"name of the function, or of the tracepoint as category/event"`
	Module string      `json:"module" col:"MODULE,width=20" help:"file of a user function; module of a kernel function that is in one"`
	Label  string      `json:"label" col:"LABEL,width=16" help:"what the user calls the probe, behind a #"`
	Args   fetch.Tuple `json:"args" col:"ARGS,width=40" help:"the values that the probe asks for, by the expressions; one that could not be read is absent (? in text)"`
}

type label struct {
	Func string `json:"func" help:"name of the function, or of the tracepoint as category/event"`
	Expr string `json:"expr" help:"the value, or what the user calls it, behind a #"`
}

// Tool is argdist.
var Tool = tool.Define(tool.Spec{
	Name:     "argdist",
	Category: "function",
	Summary:  "Count calls of functions by their arguments, or show these as histograms",
	Description: `Counts the hits of probes by the values that they ask for (-C), or shows the distribution of one value (-H).

Probes, expressions and conditions are those of trace(8): a function with expressions over its arguments, its return with retval, a tracepoint with expressions over its fields; 'if' and a condition. BCC's form, with types between colons, is understood: 'p::__kmalloc(u64 size):u64:size:size > 16#sizes'.

Values are counted in the kernel; every hit is in a count. With -H a hit whose value is negative or could not be read is in no histogram: the summary has their numbers (negative, no_value). --output json has a line of type "row" for each count with -C, and one of type "histogram" for each histogram with -H.`,
	Peers: []string{
		"-C and -H do not go together in one run.",
		"$latency and $entry of BCC are not there: funclatency measures calls.",
		"-v and -I (BCC: show the program, include headers) are not there, as no C is compiled.",
		"What is counted by takes 80 bytes at the most, strings included: -z, which is 24 here and 80 in BCC, makes them shorter or longer.",
	},
	Overhead: "A hit that is counted by a number and a string takes 0.4 us in the program (300,000 hits). The trap to a user function is more than that, see funccount(8).",
	Examples: []string{
		`argdist -C 'do_sys_openat2(filename)' -T 10          # the files that are opened most, each second`,
		`argdist -H 'r:vfs_read(retval) if retval > 0'        # sizes of what is read`,
		`argdist -c -H 'vfs_write(count)' -i 10               # sizes of what is written, until now, every 10 seconds`,
		`argdist -C 't:syscalls:sys_enter_openat(dfd)' -i 5   # where there are no kprobes`,
		`argdist -H 'p:c:malloc(size_t size):size_t:size'     # as BCC writes it`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{Every: flags.Duration(time.Second), StringSize: 24}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if len(o.Count) > 0 && len(o.Histogram) > 0 {
		return nil, errors.New("-C and -H do not go together")
	}
	if o.StringSize < 1 {
		return nil, errors.New("-z is 1 at least")
	}
	set := &fetch.Set{}
	if len(o.Histogram) > 0 {
		return o.hists(set), nil
	}
	return o.table(set), nil
}

func (o *options) table(set *fetch.Set) tool.Source {
	t := &tool.Table[key, counts, row]{
		Rounds:  tool.Rounds{Every: o.Every, Count: o.Number},
		Ranking: tool.Ranking{Rows: o.Top, Sort: "count"}, Cumulative: o.Cumulative,
		Columns: []string{"count", "func", "args"},
		Label: func(k *key, _ *counts) row {
			site := &set.Sites[k.Target]
			values := site.Decode(k.Data[:])
			return row{Func: site.Name, Module: site.Module, Label: site.Probe.Label, Args: values.Tuple()}
		},
		Fill: func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}
	t.Resolve = func(p *tool.Plan, k *tool.Kernel) error {
		p.MapEntries["hists"], p.MapEntries["hists_plain"] = 1, 1
		return o.find(set, o.Count, p, k)
	}
	t.MapEntries = map[string]uint32{}
	return t
}

func (o *options) hists(set *fetch.Set) tool.Source {
	h := &tool.Hists[histKey, label]{
		Interval: tool.Interval{Rounds: tool.Rounds{Every: o.Every, Count: o.Number}},
		Unit:     histogram.Values, Cumulative: o.Cumulative,
		Keys: []string{"func", "expr"},
		Label: func(k histKey) label {
			site := &set.Sites[k.Target]
			l := label{site.Name, site.Probe.Label}
			if l.Expr == "" {
				l.Expr = site.Probe.Items[0].Source
			}
			return l
		},
	}
	h.Resolve = func(p *tool.Plan, k *tool.Kernel) error {
		p.MapEntries["table"] = 1
		p.Variables["dist_hist"] = true
		if err := o.find(set, o.Histogram, p, k); err != nil {
			return err
		}
		for i := range set.Sites {
			if !set.Sites[i].IsNumber() {
				return fmt.Errorf("%w: %s: a histogram is of one number", flags.ErrUsage, set.Sites[i].Probe.Text)
			}
		}
		return nil
	}
	return h
}

// find finds the places of all probes.
func (o *options) find(set *fetch.Set, probes probes, p *tool.Plan, k *tool.Kernel) error {
	if len(probes) == 0 {
		return fmt.Errorf("%w: there is no probe: give -C or -H", flags.ErrUsage)
	}
	f := fetch.Finder{TextSize: o.StringSize, Room: dataMax}
	// Without BTF there are still arguments by number, and fields of tracepoints.
	f.Types, _ = k.Types()
	for _, text := range probes {
		probe, err := fetch.ParseDist(text)
		if err == nil {
			err = f.Add(set, probe)
		}
		if err != nil {
			return flags.Usage(err)
		}
	}
	p.Instances = set.Instances
	return nil
}
