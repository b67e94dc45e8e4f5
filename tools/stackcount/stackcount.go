// Package stackcount counts by stacks how functions and tracepoints are reached.
package stackcount

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh stackcount.bpf.c

type options struct {
	Pattern string `pos:"pattern" help:"functions, tracepoints or USDT probes, as vfs_read, c:malloc, t:block:*, u:c:*"`
	tool.StackOptions
	tool.Sides
	PerProcess bool  `flag:"perpid,P" bpf:"by_pid" help:"tell processes apart"`
	Regexp     bool  `flag:"regexp,r" help:"the pattern is a regular expression, which a name must match from its beginning on"`
	CPU        int32 `flag:"cpu,c" arg:"N" bpf:"targ_cpu" help:"only on this CPU; -1 is every one"`
	Timestamp  bool  `flag:"timestamp,T" help:"for BCC's sake: each report of JSON and CSV has its time"`
}

// key is struct table_key, counts struct table_value.
type (
	key struct {
		Kernel tool.StackID `btf:"kernel_stack"`
		User   tool.StackID `btf:"user_stack"`
		PID    uint32
		Comm   value.Comm
		Target uint32
	}
	counts struct{ Count uint64 }
)

type row struct {
	Func        string      `json:"func" col:"FUNC,width=30" help:"name of the function, or of the tracepoint as category/event"`
	PID         uint32      `json:"pid" col:"PID,width=7" help:"process in whose context it was hit, in the initial PID namespace; absent without --perpid"`
	Comm        value.Comm  `json:"comm" col:"COMM,width=16" help:"name of its thread; absent without --perpid"`
	Count       uint64      `json:"count" col:"COUNT,width=10,right" help:"hits: calls, or returns where the pattern asks for these"`
	KernelStack value.Trace `json:"kernel_stack" help:"the kernel's functions, the innermost first: the one that was hit, if it is the kernel's; absent for functions of user space"`
	UserStack   value.Trace `json:"user_stack" help:"the process's functions, the innermost first; absent for threads of the kernel"`
}

// Tool is stackcount.
var Tool = tool.Define(tool.Spec{
	Name:     "stackcount",
	Category: "function",
	Summary:  "Count by stacks how functions and tracepoints are reached",
	Description: `Counts the stacks that lead to a function or tracepoint: who calls it, and how often.

vfs_read is a kernel function, c:malloc one of the C library, /usr/bin/bash:readline one of a program, t:sched:sched_switch a tracepoint, u:c:setjmp a probe that the library has built in (USDT). In front of a function r: is for its returns. Where * and ? are patterns, all that match are counted; text then has their names above the stacks. The spellings of BCC, bpftrace and ksnoop are understood.

A function of user space that has just begun has no frame of its own; its caller is found all the same.

The filters, as --pid, are of the current task; in an interrupt that is the one which was interrupted.`,
	Peers: []string{
		"-D is --duration, -i is --interval.",
		"-v (BCC: raw addresses) is --address.",
		"Stacks of the same functions are one, whichever addresses in them were hit; -s and --address tell these apart.",
		"The direct caller of a function of user space is there, also before kernel 6.11.",
		"-T changes nothing: each report has its time, but for text.",
		"--debug (BCC) is not there; --verbose and --explain say how the functions are attached.",
	},
	Examples: []string{
		"stackcount t:block:block_rq_issue         # who does disk I/O, until Ctrl-C",
		"stackcount -i 1 -D 10 vfs_write           # a report each second, ten seconds",
		"stackcount -p 1234 -U c:malloc            # who allocates memory in a process",
		"stackcount -P -f -D 5 'tcp_send*' > out   # folded, processes apart",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "D", "interval": "i", "offset": "s"},
}, options{StackOptions: tool.DefaultStacks(), Sides: tool.DefaultSides(), CPU: -1}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	var places []target.Place
	s := &tool.Stacks[key, counts, row]{
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "count",
		Unit:   tool.Calls,
		Label:  func(k *key, t *tool.Traces) row { return label(k, places[k.Target].Name, t) },
		Fill:   func(r *row, c *counts) { r.Count = c.Count },
		Weight: func(r *row) uint64 { return r.Count },
		Parts:  func(r *row) []tool.Part { return o.parts(r, len(places) > 1) },
	}
	if !o.PerProcess {
		s.Off = []string{"pid", "comm"}
	}
	s.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		spec, found, err := target.Find(o.Pattern, o.Regexp)
		if err != nil {
			return flags.Usage(err)
		}
		p.Variables = map[string]any{"at_entry": spec.Kind == target.User && spec.Offset == 0}
		p.Instances, places = target.Instances(found, spec.IsPattern())
		return nil
	}
	return s, nil
}

func label(k *key, name string, t *tool.Traces) row {
	return row{Func: name, PID: k.PID, Comm: k.Comm, KernelStack: t.Of(k.Kernel), UserStack: t.Of(k.User)}
}

// parts are the stacks, behind the name of the process if that is asked for, and the
// function's where there are several.
func (o *options) parts(r *row, several bool) []tool.Part {
	parts := tool.TaskParts(r.Comm.String(), r.PID, r.UserStack, r.KernelStack, o.Delimited)
	if several {
		parts = append(parts, tool.Part{Label: r.Func, Mark: true})
	}
	if !o.PerProcess {
		return parts[1:]
	}
	return parts
}
