// Package argdist counts function calls by their arguments.
package argdist

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh argdist.bpf.c

type options struct {
	Count      probes         `flag:"count,C" arg:"PROBE" help:"count calls by the values of the expressions: 'do_sys_openat2(dfd, filename)'; can be repeated"`
	Histogram  probes         `flag:"histogram,H" arg:"PROBE" help:"histogram of one expression: 'vfs_read(count)'; can be repeated"`
	Every      flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports"`
	Cumulative bool           `flag:"cumulative,c" help:"report totals since the start instead of values per interval"`
	Number     uint64         `flag:"number,n" arg:"N" min:"1" help:"number of reports; unlimited by default"`
	Top        uint64         `flag:"top,T" arg:"N" also:"rows" min:"1" help:"with -C: show only the N most frequent values of each interval"`
	Include    probes         `flag:"include,I" arg:"HEADER" help:"no effect, for compatibility with BCC: types come from the kernel's BTF; can be repeated"`
	StringSize int            `flag:"string-size,z" arg:"BYTES" min:"1" max:"126" help:"number of bytes of a string that are used"`
}

// probes is a repeatable flag. Values are not split at commas, because a probe can contain them.
type probes []string

// UnmarshalText appends a probe.
func (p *probes) UnmarshalText(text []byte) error {
	*p = append(*p, string(text))
	return nil
}

// String returns the default value.
func (p *probes) String() string { return "" }

// Mirrors of struct table_key, struct table_value and struct hist_key. Data has FETCH_DATA_MAX bytes.
type (
	key struct {
		Target, _ uint32
		Data      [144]byte
	}
	counts  struct{ Count uint64 }
	histKey struct{ Target uint32 }
)

type row struct {
	Count  uint64      `json:"count" col:"COUNT,width=10,right" help:"hits with these values in the interval; with --cumulative since the start"`
	Func   string      `json:"func" col:"FUNC,width=24" help:"name of the function; of a tracepoint category/event"`
	Module string      `json:"module" col:"MODULE,width=20" help:"file of a user function, or module of a kernel function"`
	Label  string      `json:"label" col:"LABEL,width=16" help:"label of the probe, given after # or ;"`
	Args   fetch.Tuple `json:"args" col:"ARGS,width=40" help:"values of the expressions; a value that could not be read is absent (? in text)"`
}

type label struct {
	Func string `json:"func" help:"name of the function; of a tracepoint category/event"`
	Expr string `json:"expr" help:"expression, or the label given after # or ;"`
}

// Tool is the definition of argdist.
var Tool = tool.Define(tool.Spec{
	Name:     "argdist",
	Category: "function",
	Summary:  "Count function calls by argument values, or show values as histograms",
	Description: `Counts how often functions and tracepoints are hit with the same values (-C), or shows the distribution of one value as a histogram (-H).

Probes, expressions and conditions have the syntax of trace(8): a function with expressions over its arguments, a function return with retval, or a tracepoint with expressions over its fields, followed by an optional 'if' and a condition. The syntax of BCC, with types between colons, is accepted too: 'p::__kmalloc(u64 size):u64:size:size > 16#sizes'.

` + target.Manual + `

` + tool.ReturnsManual + `

Values are counted in the kernel, and -C counts every hit. A hit whose condition needs memory that could not be read is counted as lost (condition_unread); see trace(8). Arguments and return values of user functions that an expression names have no types, and are unsigned numbers of 64 bits: for an int, which can be negative, write (int)arg1 or (int)retval. -H cannot represent a value that is negative or could not be read; the summary has the number of such hits (negative, no_value). With $latency or $entry, a return whose entry was not observed is not counted (no_begin), nor is a call that does not return (no_return). With --output json, -C writes one line of type "row" per count, and -H one line of type "histogram" per histogram.`,
	Peers: []string{
		"-C and -H cannot be combined in one run.",
		"$latency is the duration of the call in ns (CLOCK_MONOTONIC), and $entry(NAME) the value that an argument had at the entry of the call; memory that it points to is read at the return, as in BCC.",
		"-v (BCC: print the program) shows more messages, and -I (BCC: include headers) has no effect, because no C code is compiled.",
		"The value of a return without an expression is the return value: for user functions an int, as in BCC.",
		"Values are converted to the types between colons; their number must be that of the expressions.",
		"The values that a hit is counted by have at most 128 bytes in total, 8 for each number, including strings. -z limits the length of strings; its default is 24 bytes (BCC: 80).",
	},
	Overhead: "The BPF program takes 0.4 us for a hit counted by a number and a string (300,000 hits). For user functions the trap into the kernel costs more than that; see funccount(8).",
	Examples: []string{
		"argdist -C 'do_sys_openat2(filename)' -T 10          # most frequently opened files, each second",
		"argdist -H 'r:vfs_read(retval) if retval > 0'        # sizes of reads",
		"argdist -c -H 'vfs_write(count)' -i 10               # sizes of writes since the start, every 10 seconds",
		"argdist -C 't:syscalls:sys_enter_openat(dfd)' -i 5   # a tracepoint, where kprobes are unavailable",
		"argdist -H 'p:c:malloc(size_t size):size_t:size'     # BCC syntax",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "tid": "t", "duration": "d"},
}, options{Every: flags.Duration(time.Second), StringSize: 24}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if len(o.Count) > 0 && len(o.Histogram) > 0 {
		return nil, errors.New("-C and -H cannot be combined")
	}
	var parsed []*fetch.Probe
	for _, text := range slices.Concat(o.Count, o.Histogram) {
		p, err := fetch.ParseDist(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, p)
	}
	set := &fetch.Set{}
	if len(o.Histogram) > 0 {
		return o.hists(set, parsed, env), nil
	}
	return o.table(set, parsed, env), nil
}

func (o *options) table(set *fetch.Set, parsed []*fetch.Probe, env *tool.Env) tool.Source {
	t := &source.Table[key, counts, row]{
		Rounds:  source.Rounds{Every: o.Every, Count: o.Number},
		Ranking: source.Ranking{Rows: o.Top, Sort: "count"}, Cumulative: o.Cumulative,
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
		return o.find(set, parsed, p, env, k)
	}
	t.MapEntries = map[string]uint32{}
	return t
}

func (o *options) hists(set *fetch.Set, parsed []*fetch.Probe, env *tool.Env) tool.Source {
	h := &source.Hists[histKey, label]{
		Interval: source.Interval{Rounds: source.Rounds{Every: o.Every, Count: o.Number}},
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
		if err := o.find(set, parsed, p, env, k); err != nil {
			return err
		}
		for i := range set.Sites {
			if !set.Sites[i].IsNumber() {
				return fmt.Errorf("%w: %s: a histogram needs exactly one numeric expression", flags.ErrUsage, set.Sites[i].Probe.Text)
			}
		}
		return nil
	}
	return h
}

// find resolves all probes to attach points.
func (o *options) find(set *fetch.Set, probes []*fetch.Probe, p *tool.Plan, env *tool.Env, k *tool.Kernel) error {
	if len(probes) == 0 {
		return fmt.Errorf("%w: missing probe: use -C or -H", flags.ErrUsage)
	}
	pids, err := env.Processes()
	if err != nil {
		return err
	}
	f := fetch.Finder{Finder: target.Finder{PIDs: pids, Note: p.Note}, TextSize: o.StringSize, DataMax: len(key{}.Data), Calls: true}
	// Types are optional: arguments by number and tracepoint fields also work without BTF.
	f.Types, _ = k.Types()
	f.ModuleTypes = k.ModuleTypes
	for _, probe := range probes {
		if err := f.Add(set, probe); err != nil {
			return flags.Usage(err)
		}
	}
	p.Instances = set.Instances
	return nil
}
