// Package stackcount counts calls of functions and tracepoints by stack trace.
package stackcount

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh stackcount.bpf.c

type options struct {
	Pattern string `pos:"pattern" help:"functions, tracepoints or USDT probes, such as vfs_read, c:malloc, t:block:*, u:c:*"`
	source.StackOptions
	source.Sides
	PerProcess bool  `flag:"perpid,P" bpf:"by_pid" help:"group by process"`
	Regexp     bool  `flag:"regexp,r" help:"the pattern is a regular expression, which is matched at the start of a name"`
	CPU        int32 `flag:"cpu,c" arg:"N" min:"-1" id:"cpu" bpf:"targ_cpu" help:"only on this CPU; -1 means all"`
	Debug      bool  `flag:"debug" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
	Timestamp  bool  `flag:"timestamp,T" help:"no effect, for compatibility with BCC: in JSON and CSV each report has its time"`
}

// Mirrors of struct table_key and struct table_value.
type (
	key struct {
		Kernel stacktrace.StackID `btf:"kernel_stack"`
		User   stacktrace.StackID `btf:"user_stack"`
		PID    uint32
		Comm   value.Comm
		Target uint32
	}
	counts struct{ Count uint64 }
)

type row struct {
	Func        string      `json:"func" col:"FUNC,width=30" help:"name of the function; of a tracepoint category/event"`
	PID         uint32      `json:"pid" col:"PID,width=7" help:"process that was current at the hit, in the initial PID namespace; absent without --perpid"`
	Comm        value.Comm  `json:"comm" col:"COMM,width=16" help:"name of the thread; absent without --perpid"`
	Count       uint64      `json:"count" col:"COUNT,width=10,right" help:"hits: calls, or returns if the pattern selects returns"`
	KernelStack value.Trace `json:"kernel_stack" help:"kernel stack trace, innermost frame first, starting at the hit function; absent for user functions"`
	UserStack   value.Trace `json:"user_stack" help:"user stack trace, innermost frame first; absent for kernel threads"`
}

// Tool is the definition of stackcount.
var Tool = tool.Define(tool.Spec{
	Name:     "stackcount",
	Category: "function",
	Summary:  "Count function calls and tracepoint hits by stack trace",
	Description: `Counts the stack traces that lead to a function or tracepoint: which code calls it, and how often.

vfs_read is a kernel function, c:malloc a function of the C library, /usr/bin/bash:readline a function of a program, t:sched:sched_switch a tracepoint, u:c:setjmp a USDT probe in the library. The prefix r: selects returns of a function. With the patterns * and ? all matches are counted, and text shows the name of the function above each stack. The syntaxes of BCC, bpftrace and ksnoop are accepted.

` + target.Manual + `

` + tool.ReturnsManual + `

At its entry and at its return instruction, a user function has no stack frame; its direct caller is included nevertheless.

Filters such as --pid test the current task; in an interrupt that is the interrupted task.`,
	Peers: []string{
		"-D is --duration, -i is --interval.",
		"-v is --address, as in BCC; --verbose has no letter.",
		"Stacks are grouped by functions; with -s or --address by addresses.",
		"The direct caller of a user function is included, even before kernel 6.11.",
		"-T has no effect: each report has its time, except in text.",
		"--debug (BCC: print the program) is --verbose; --explain shows how functions are attached.",
	},
	Examples: []string{
		"stackcount t:block:block_rq_issue         # which code issues disk I/O, until Ctrl-C",
		"stackcount -i 1 -D 10 vfs_write           # a report each second, for ten seconds",
		"stackcount -p 1234 -U c:malloc            # which code of a process allocates memory",
		"stackcount -P -f -D 5 'tcp_send*' > out   # folded, by process",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "duration": "D", "interval": "i", "offset": "s", "verbose": "", "address": "v"},
}, options{StackOptions: source.DefaultStacks(), Sides: source.DefaultSides(), CPU: -1}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	var places []target.Place
	s := &source.Stacks[key, counts, row]{
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "count",
		Unit:   source.Calls,
		Label:  func(k *key, t *stacktrace.Traces) row { return label(k, places[k.Target].Name, t) },
		Fill:   func(r *row, c *counts) { r.Count = c.Count },
		Weight: func(r *row) uint64 { return r.Count },
		Parts:  func(r *row) []source.Part { return o.parts(r, len(places) > 1) },
	}
	if !o.PerProcess {
		s.Off = []string{"pid", "comm"}
	}
	s.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		pids, err := env.Processes()
		if err != nil {
			return err
		}
		finder := target.Finder{PIDs: pids, Note: p.Note}
		spec, found, err := finder.FindText(o.Pattern, o.Regexp)
		if err != nil {
			return flags.Usage(err)
		}
		p.Variables = map[string]any{"at_entry": spec.Kind == target.User && spec.Offset == 0}
		p.Instances, places = target.Instances(found, spec.IsPattern())
		return nil
	}
	return s, nil
}

func label(k *key, name string, t *stacktrace.Traces) row {
	return row{Func: name, PID: k.PID, Comm: k.Comm, KernelStack: t.Trace(k.Kernel), UserStack: t.Trace(k.User)}
}

// parts returns the stacks, preceded by the process with --perpid, and followed by the function if
// several functions are traced.
func (o *options) parts(r *row, several bool) []source.Part {
	parts := source.TaskParts(r.Comm.String(), r.PID, r.UserStack, r.KernelStack, o.Delimited)
	if several {
		parts = append(parts, source.Part{Label: r.Func, Mark: true})
	}
	if !o.PerProcess {
		return parts[1:]
	}
	return parts
}
