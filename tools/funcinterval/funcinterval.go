// Package funcinterval shows the time between calls of a function as histograms.
package funcinterval

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh funcinterval.bpf.c

type options struct {
	Pattern   string         `pos:"pattern" help:"functions, tracepoints or USDT probes, such as vfs_read, c:malloc, t:block:block_rq_issue, u:c:setjmp"`
	Every     flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports" unset:"one report at the end by default"`
	Timestamp bool           `flag:"timestamp,T" help:"show the time of each report"`
	source.Coarse
	Function bool `flag:"function,F" bpf:"by_func" help:"one histogram per function"`
	Regexp   bool `flag:"regexp,r" help:"the pattern is a regular expression, which is matched at the start of a name"`
}

// histKey mirrors struct hist_key.
type histKey struct{ Target uint32 }

type label struct {
	Func   string `json:"func" help:"name of the function; of a tracepoint category/event"`
	Module string `json:"module" help:"file of a user function, or module of a kernel function"`
}

// Tool is the definition of funcinterval.
var Tool = tool.Define(tool.Spec{
	Name:     "funcinterval",
	Category: "function",
	Summary:  "Time between calls of a function or hits of a tracepoint, as a histogram",
	Description: `Measures the time from each call of a function to its next call, with CLOCK_MONOTONIC, by whatever task and on whatever CPU. With a task filter, such as --pid, only the calls of these tasks count. Regular work, such as a timer, shows as a narrow peak.

vfs_read is a kernel function, c:malloc a function of the C library, /usr/bin/bash:readline a function of a program, t:sched:sched_switch a tracepoint, u:c:setjmp a USDT probe in the library. The prefix r: selects returns of a function. With the patterns * and ? all matches are measured, each from its own previous call. The syntaxes of BCC, bpftrace and ksnoop are accepted.

` + target.Manual + `

` + tool.ReturnsManual + `

An interval is counted when it ends. The first call of each function ends no interval (first in the summary). A call while the BPF program runs for a call of the same function on another CPU, usually for less than a microsecond, is left out: it ends and starts no interval, and is counted as simultaneous. So the number of calls is the number of intervals plus first plus simultaneous, and the sum of the intervals is the time from the first call to the last.`,
	Peers: []string{
		"A pattern can match several functions; BCC accepts one. Without -F they share a histogram, but each interval is between calls of the same function.",
		"Calls on several CPUs at once are left out and counted; in BCC several intervals can start at the same call.",
		"Returns and USDT probes can be measured too.",
	},
	Overhead: "The BPF program takes 0.5 us per call (200,000 calls of a user function on a busy virtual machine, --stats). For user functions the trap into the kernel costs more than that: see funccount(8).",
	Examples: []string{
		"funcinterval -u vfs_read                    # time between VFS reads, in microseconds",
		"funcinterval -m -i 1 t:block:block_rq_issue # between disk requests, each second",
		"funcinterval -p 1234 c:malloc               # between calls of malloc in one process",
		"funcinterval -F 't:irq:softirq_*'           # one histogram per tracepoint",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	unit, err := o.Unit()
	if err != nil {
		return nil, err
	}
	var places []target.Place
	h := &source.Hists[histKey, label]{
		Interval: source.Interval{Rounds: source.Rounds{Every: o.Every}, Timestamp: o.Timestamp},
		Unit:     unit,
		Label: func(k histKey) label {
			p := places[k.Target]
			return label{p.Name, p.Module}
		},
	}
	if o.Function {
		h.Keys = []string{"func", "module"}
	}
	h.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		pids, err := env.Processes()
		if err != nil {
			return err
		}
		finder := target.Finder{PIDs: pids, Note: p.Note}
		spec, found, err := finder.FindText(o.Pattern, o.Regexp)
		if err != nil {
			return flags.Usage(err)
		}
		p.Instances, places = target.Instances(found, spec.IsPattern())
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return fmt.Errorf("count CPUs: %w", err)
		}
		// An entry that a CPU deletes takes space until the deletion is complete.
		p.MapEntries = map[string]uint32{"last_calls": uint32(len(places)), "replacing": uint32(len(places) + cpus)}
		return nil
	}
	return h, nil
}
