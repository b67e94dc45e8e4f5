// Package wakeuptime shows blocked time of threads by waker.
package wakeuptime

import (
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh wakeuptime.bpf.c

type options struct {
	source.Stop
	source.StackOptions
	source.Waits
}

// Mirrors of struct table_key and struct table_value.
type (
	key struct {
		Kernel   stacktrace.StackID `btf:"kernel_stack"`
		WakerPID uint32
		PID      uint32
		Waker    value.Comm
		Comm     value.Comm
	}
	counts struct{ Ns, Count uint64 }
)

type row struct {
	Comm        value.Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread that was woken"`
	PID         uint32       `json:"pid" col:"PID,width=7" help:"process of this thread, in the initial PID namespace"`
	Waker       value.Comm   `json:"waker" col:"WAKER,width=16" help:"name of the thread that woke it; in an interrupt the interrupted thread"`
	WakerPID    uint32       `json:"waker_pid" col:"WAKER_PID,width=9" help:"process of the waker; 0 for an idle CPU"`
	Ns          value.Micros `json:"total_ns" col:"TIME (us),width=12,right" help:"time from blocking (sched_switch) to wake-up (sched_waking), CLOCK_MONOTONIC, sum of all waits; text shows microseconds"`
	Count       uint64       `json:"count" col:"COUNT,width=10,right" help:"number of waits"`
	KernelStack value.Trace  `json:"kernel_stack" help:"kernel stack trace of the waker, innermost frame first"`
}

// Tool is the definition of wakeuptime.
var Tool = tool.Define(tool.Spec{
	Name:     "wakeuptime",
	Category: "scheduler",
	Summary:  "Blocked time of threads by waker and its kernel stack trace",
	Description: `Measures the time that threads are blocked, summed by the thread that wakes them and its kernel stack trace.

A wait begins when a thread blocks (sched_switch), and ends when another thread wakes it (sched_waking, in the context of the waker); the run queue latency after that is not included. Preempted threads are not blocked and have no waker. In an interrupt, the waker is the interrupted thread or an idle CPU (swapper); its stack trace shows the interrupt.

offwaketime(8) shows the stack traces of both threads.`,
	Peers: []string{
		"-v is --address, as in libbpf-tools and BCC; --verbose has no letter.",
		"-p is --pid; it and the other filters apply to the waiting thread.",
		"The waker is right even if the woken thread is moved to another CPU: libbpf-tools uses sched_wakeup, which is hit on that CPU, and shows the thread running there.",
		"Rows are also grouped by process; text shows its ID in brackets.",
		"--stack-storage-size has no effect: the number of stacks is not limited.",
	},
	Examples: []string{
		"wakeuptime 10                 # all threads, ten seconds",
		"wakeuptime -p 1234 -m 1000    # waits of one process of 1 ms or more",
		"wakeuptime -f 5               # folded: waker, stack, target",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "verbose": "", "address": "v"},
}, options{StackOptions: source.DefaultStacks(), Waits: source.DefaultWaits()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Stacks[key, counts, row]{
		Plan:         tool.Plan{Variables: o.Waits.Variables()},
		StackOptions: o.StackOptions, KernelOnly: true,
		Sort: "total_ns",
		Unit: source.Nanoseconds,
		Label: func(k *key, t *stacktrace.Traces) row {
			return row{Comm: k.Comm, PID: k.PID, Waker: k.Waker, WakerPID: k.WakerPID, KernelStack: t.Trace(k.Kernel)}
		},
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts:  parts,
	}, nil
}

func parts(r *row) []source.Part {
	return []source.Part{
		{Label: r.Waker.String(), Title: "waker:", More: fmt.Sprintf(" (%d)", r.WakerPID)},
		{Trace: r.KernelStack},
		{Label: r.Comm.String(), Title: "target:", More: fmt.Sprintf(" (%d)", r.PID)},
	}
}
