// Package wakeuptime shows who wakes threads that waited, and how long they had.
package wakeuptime

import (
	"fmt"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh wakeuptime.bpf.c

type options struct {
	tool.Stop
	tool.StackOptions
	tool.Waits
}

// key is struct table_key, counts struct table_value.
type (
	key struct {
		Kernel   tool.StackID `btf:"kernel_stack"`
		WakerPID uint32
		PID      uint32
		Waker    value.Comm
		Comm     value.Comm
	}
	counts struct{ Ns, Count uint64 }
)

type row struct {
	Comm        value.Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread that was woken"`
	PID         uint32       `json:"pid" col:"PID,width=7" help:"its process, in the initial PID namespace"`
	Waker       value.Comm   `json:"waker" col:"WAKER,width=16" help:"name of the thread that woke it; in an interrupt that is the one which was interrupted"`
	WakerPID    uint32       `json:"waker_pid" col:"WAKER_PID,width=9" help:"its process; 0 for an idle CPU"`
	Ns          value.Micros `json:"total_ns" col:"TIME (us),width=12,right" help:"time from when they blocked (sched_switch) until they were woken (sched_waking), CLOCK_MONOTONIC, of all these waits; text shows microseconds"`
	Count       uint64       `json:"count" col:"COUNT,width=10,right" help:"these waits"`
	KernelStack value.Trace  `json:"kernel_stack" help:"the waker's functions in the kernel, the innermost first"`
}

// Tool is wakeuptime.
var Tool = tool.Define(tool.Spec{
	Name:     "wakeuptime",
	Category: "scheduler",
	Summary:  "Show who wakes threads that waited, and how long they had waited",
	Description: `Measures how long threads are blocked, and adds it up by who wakes them, and by the waker's stack in the kernel.

A wait begins when a thread blocks (sched_switch), and ends when another wakes it (sched_waking, in the waker's context); the time that it then waits for a CPU is not in it. Threads that were preempted are woken by nobody. In an interrupt the waker is the thread that was interrupted, or an idle CPU (swapper): the stack says what happened.

offwaketime shows the stacks of both sides.`,
	Peers: []string{
		"-p is --pid; it and the other filters are of the thread that waits.",
		"The waker is who woke it, also where the woken thread is put on another CPU: libbpf-tools looks at sched_wakeup, which runs there, and names who runs on that CPU.",
		"Rows are by process as well, whose numbers text has in brackets.",
		"--stack-storage-size means nothing: there is no limit.",
	},
	Examples: []string{
		"wakeuptime 10                 # all threads, ten seconds",
		"wakeuptime -p 1234 -m 1000    # waits of one process, of 1 ms and more",
		"wakeuptime -f 5               # folded: waker, stack, target",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{StackOptions: tool.DefaultStacks(), Waits: tool.DefaultWaits()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &tool.Stacks[key, counts, row]{
		Plan:         tool.Plan{Duration: o.Duration, Variables: o.Waits.Variables()},
		StackOptions: o.StackOptions, KernelOnly: true,
		Sort: "total_ns",
		Unit: tool.Nanoseconds,
		Label: func(k *key, t *tool.Traces) row {
			return row{Comm: k.Comm, PID: k.PID, Waker: k.Waker, WakerPID: k.WakerPID, KernelStack: t.Of(k.Kernel)}
		},
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts:  parts,
	}, nil
}

func parts(r *row) []tool.Part {
	return []tool.Part{
		{Label: r.Waker.String(), Title: "waker:", More: fmt.Sprintf(" (%d)", r.WakerPID)},
		{Trace: r.KernelStack},
		{Label: r.Comm.String(), Title: "target:", More: fmt.Sprintf(" (%d)", r.PID)},
	}
}
