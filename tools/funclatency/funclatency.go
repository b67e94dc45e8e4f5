// Package funclatency shows how long calls of functions take.
package funclatency

import (
	"errors"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh funclatency.bpf.c

type options struct {
	Pattern      string         `pos:"function" help:"functions, as vfs_*, c:malloc or /usr/bin/bash:readline"`
	Every        flags.Duration `flag:"interval,i" arg:"TIME" help:"time between reports; one report at the end without it"`
	Timestamp    bool           `flag:"timestamp,T" help:"show the time of each report"`
	Microseconds bool           `flag:"microseconds,u" help:"show microseconds, not nanoseconds"`
	Milliseconds bool           `flag:"milliseconds,m" help:"show milliseconds"`
	Function     bool           `flag:"function,F" bpf:"by_func" help:"a histogram for each function"`
	Regexp       bool           `flag:"regexp,r" help:"the pattern is a regular expression, which a name must match from its beginning on"`
	Kprobes      bool           `flag:"kprobes,k" help:"take kprobes, though there may be a cheaper way"`
	Level        uint32         `flag:"level,l" help:"for BCC's sake: calls of any depth are told apart without it"`
}

// histKey is struct hist_key.
type histKey struct{ Target uint32 }

type label struct {
	Func   string `json:"func" help:"name of the function"`
	Module string `json:"module" help:"file of a user function; module of a kernel function that is in one"`
}

// Tool is funclatency.
var Tool = tool.Define(tool.Spec{
	Name:     "funclatency",
	Category: "function",
	Summary:  "Show how long calls of kernel or user functions take, as a histogram",
	Description: `Measures the time from when a function is called until it returns, in CLOCK_MONOTONIC, also when its task sleeps in between. What the probes themselves cost is in it: a user function is made slower by two traps, and the second is in the time (see OVERHEAD).

The function is a name or a pattern, with * for any text and ? for any character: vfs_read or vfs_* are kernel functions, c:malloc is a function of the C library, /usr/bin/bash:readline one of a program. The spellings of BCC, bpftrace and ksnoop are understood. A pattern means all functions that have a probe; what cannot have one is named.

Calls are told apart by their place on the stack. A function that calls itself counts each call, with the time of those within it. A call whose function is left by longjmp or an exception, or whose task is killed, is not counted. The return of a call whose beginning was not seen counts as no_begin in the summary.

In Go programs returns cannot be traced: the kernel would change the stack, which Go moves. The tool refuses.`,
	Peers: []string{
		"-c (libbpf-tools: a cgroup) is --cgroup, which takes v1 cgroups too.",
		"BCC's -l (levels of recursion, 16 by its default) is not needed.",
		"A pattern of several functions may be given without -F, as BCC's; libbpf-tools takes one function.",
	},
	Overhead: "The programs take 330 and 430 ns a call. In user functions the traps that lead to them are more: calls of 2 ns took 13 us with them on a busy virtual machine, and were shown as 10.6 us (500,000 calls). What is measured there is not of use for functions that are shorter.",
	Examples: []string{
		"funclatency -u vfs_read                  # reads of files, in microseconds",
		"funclatency -F -i 1 'vfs_*'              # each function by itself, every second",
		"funclatency -p 1234 c:malloc             # malloc of one process",
		"funclatency /usr/bin/bash:readline -m    # how long users think",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	unit := histogram.Nanoseconds
	switch {
	case o.Milliseconds && o.Microseconds:
		return nil, errors.New("-m and -u do not go together")
	case o.Milliseconds:
		unit = histogram.Milliseconds
	case o.Microseconds:
		unit = histogram.Microseconds
	}
	var places []target.Place
	h := &tool.Hists[histKey, label]{
		Interval: tool.Interval{Rounds: tool.Rounds{Every: o.Every}, Timestamp: o.Timestamp},
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
		places, err = o.find(p)
		return flags.Usage(err)
	}
	return h, nil
}

// find sets the plan's targets.
func (o *options) find(p *tool.Plan) ([]target.Place, error) {
	spec, err := target.Parse(o.Pattern, o.Regexp)
	if err == nil && spec.Return {
		err = errors.New("the time is until the return, which needs no naming")
	}
	if err == nil && spec.Kind != target.Kernel && spec.Kind != target.User {
		err = errors.New("only functions take time")
	}
	if err != nil {
		return nil, err
	}
	spec.Return = true // so that what has no return to be seen is refused
	var f target.Finder
	places, err := f.Find(spec)
	if err != nil {
		return nil, err
	}
	for i := range places {
		places[i].Return = false
	}
	p.Instances, places = target.Instances(places, spec.IsPattern())
	return places, nil
}
