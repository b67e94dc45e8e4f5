// Package funclatency shows function latency as histograms.
package funclatency

import (
	"errors"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh funclatency.bpf.c

type options struct {
	Pattern   string         `pos:"function" help:"functions, such as vfs_*, c:malloc or /usr/bin/bash:readline"`
	Every     flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports" unset:"one report at the end by default"`
	Timestamp bool           `flag:"timestamp,T" help:"show the time of each report"`
	source.Coarse
	Function bool   `flag:"function,F" bpf:"by_func" help:"one histogram per function"`
	Regexp   bool   `flag:"regexp,r" help:"the pattern is a regular expression, which is matched at the start of a name"`
	Kprobes  bool   `flag:"kprobes,k" help:"use kprobes even if a cheaper attach type is available"`
	Level    uint32 `flag:"level,l" help:"no effect, for compatibility with BCC: recursive calls are distinguished at any depth"`
}

// histKey mirrors struct hist_key.
type histKey struct{ Target uint32 }

type label struct {
	Func   string `json:"func" help:"name of the function"`
	Module string `json:"module" help:"file of a user function, or module of a kernel function"`
}

// Tool is the definition of funclatency.
var Tool = tool.Define(tool.Spec{
	Name:     "funclatency",
	Category: "function",
	Summary:  "Kernel and user function latency as a histogram",
	Description: `Measures the time from entry to return of functions, with CLOCK_MONOTONIC, including time in which the task sleeps. The time includes a part of the cost of the probes: a user function is slowed down by up to four traps, two at its entry and two at its return, of which one is included at each end (see OVERHEAD).

The function is a name or a pattern, in which * matches any text and ? any character: vfs_read and vfs_* are kernel functions, c:malloc is a function of the C library, /usr/bin/bash:readline one of a program. The syntaxes of BCC, bpftrace and ksnoop are accepted. A pattern selects all functions that can be probed; those that cannot are reported.

` + target.Manual + `

Nested calls are distinguished by their frame: a function that calls itself counts each call, with the time of the calls within it. A call that does not return is not in the histogram: it is counted as no_return in the summary. An exception or longjmp has left it, its task has ended, or it was still running at the end. The return of a call whose entry was not observed is counted as no_begin.

` + tool.ReturnsManual + `

Returns of Go functions cannot be traced, because the kernel would modify return addresses on the stack, which Go moves. The tool refuses to trace them.`,
	Peers: []string{
		"-c (libbpf-tools: a cgroup) is --cgroup, which also accepts cgroups v1.",
		"-l (BCC: levels of recursion, 16 by default) is not needed.",
		"A pattern can match several functions without -F, as in BCC; libbpf-tools accepts one function.",
	},
	Overhead: "The BPF programs take 330 ns at entry and 430 ns at return of a call. For user functions the traps cost more: calls of 2 ns took 29 to 41 us when traced on a busy virtual machine (200,000 calls), and 19 to 30 us with uretprobes, which take one trap less. Results for shorter functions are not meaningful.",
	Examples: []string{
		"funclatency -u vfs_read                  # VFS reads, in microseconds",
		"funclatency -F -i 1 'vfs_*'              # one histogram per function, each second",
		"funclatency -p 1234 c:malloc             # malloc in one process",
		"funclatency /usr/bin/bash:readline -m    # time that users take to enter a command",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "cgroup": "c", "duration": "d"},
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
	if o.Kprobes {
		h.Hook = []string{"kernel=kprobe"}
	}
	h.Resolve = func(p *tool.Plan, _ *tool.Kernel) (err error) {
		places, err = o.find(p, env)
		return flags.Usage(err)
	}
	return h, nil
}

// find sets the plan's targets.
func (o *options) find(p *tool.Plan, env *tool.Env) ([]target.Place, error) {
	spec, err := target.Parse(o.Pattern, o.Regexp)
	if err == nil && spec.Return {
		err = errors.New("prefix r: is not supported: the time from entry to return is measured")
	}
	if err == nil && spec.Kind != target.Kernel && spec.Kind != target.User {
		err = errors.New("only functions are supported: tracepoints and USDT probes have no duration")
	}
	if err != nil {
		return nil, err
	}
	spec.Return = true // refuse functions whose returns cannot be observed
	pids, err := env.Processes()
	if err != nil {
		return nil, err
	}
	finder := target.Finder{PIDs: pids, Note: p.Note}
	places, err := finder.Find(spec)
	if err != nil {
		return nil, err
	}
	for i := range places {
		places[i].Return = false
	}
	p.Instances, places = target.Instances(places, spec.IsPattern())
	return places, nil
}
