// Package offwaketime shows off-CPU time of threads by stack trace and waker.
package offwaketime

import (
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh offwaketime.bpf.c

type options struct {
	source.Stop
	source.StackOptions
	source.Sides
	source.Waits
	State int64 `flag:"state" arg:"MASK" min:"-1" max:"65535" bpf:"targ_state" help:"only waits that begin in one of these task states: 1 interruptible, 2 uninterruptible; 0 selects runnable threads, -1 all"`
}

// Mirrors of struct off_note, struct table_key and struct table_value.
type (
	note struct {
		Kernel      stacktrace.StackID `btf:"kernel_stack"`
		User        stacktrace.StackID `btf:"user_stack"`
		WakerKernel stacktrace.StackID `btf:"waker_kernel_stack"`
		WakerUser   stacktrace.StackID `btf:"waker_user_stack"`
		WakerPID    uint32
		WakerTID    uint32
		Waker       value.Comm
	}
	key struct {
		Note     note
		CgroupID uint64
		PID, TID uint32
		Comm     value.Comm
	}
	counts struct{ Ns, Count uint64 }
)

type row struct {
	PID              uint32       `json:"pid" col:"PID,width=7" help:"process that waited, in the initial PID namespace"`
	TID              uint32       `json:"tid" col:"TID,width=7" help:"thread that waited"`
	Comm             value.Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread at the end of the wait"`
	WakerPID         uint32       `json:"waker_pid" col:"WAKER_PID,width=9" help:"process that woke the thread; 0 for an idle CPU, or without a waker"`
	WakerTID         uint32       `json:"waker_tid" col:"WAKER_TID,width=9" help:"thread that woke it"`
	Waker            value.Name   `json:"waker" col:"WAKER,width=16" help:"name of the waking thread; in an interrupt the interrupted thread; absent without a waker, as for preempted threads"`
	Ns               value.Micros `json:"total_ns" col:"TIME (us),width=12,right" help:"time off the CPU: from sched_switch away from the thread to sched_switch back to it, CLOCK_MONOTONIC, sum of all waits; text shows microseconds"`
	Count            uint64       `json:"count" col:"COUNT,width=10,right" help:"number of waits, counted when they end"`
	KernelStack      value.Trace  `json:"kernel_stack" help:"kernel stack trace of the wait, innermost frame first"`
	UserStack        value.Trace  `json:"user_stack" help:"user stack trace of the wait, innermost frame first; absent for kernel threads"`
	WakerKernelStack value.Trace  `json:"waker_kernel_stack" help:"kernel stack trace of the waker at sched_waking, innermost frame first"`
	WakerUserStack   value.Trace  `json:"waker_user_stack" help:"user stack trace of the waker, innermost frame first"`
	CgroupID         uint64       `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"ID of the waiting thread's cgroup: inode number of its directory"`
}

// Tool is the definition of offwaketime.
var Tool = tool.Define(tool.Spec{
	Name:     "offwaketime",
	Category: "scheduler",
	Summary:  "Off-CPU time of threads by stack trace and by waker with its stack trace",
	Description: `Measures the time that threads spend off the CPU, as offcputime(8) does, summed by the stack trace in which they wait, and by the thread that woke them with its stack trace.

A wait begins when a thread leaves the CPU (sched_switch) and ends when it runs again. The waker is recorded at sched_waking, in its context; the first one counts. Waits that end without a wake-up, such as those of preempted threads, have no waker. In an interrupt, the waker is the interrupted thread or an idle CPU (swapper); its stack trace shows the interrupt.

In folded stacks and flame graphs, the stack of the waker is on top of that of the waiting thread, in reverse order, so that both meet in the middle.`,
	Peers: []string{
		"-p is --pid and -t is --tid; these and the other filters apply to the waiting thread.",
		"Stacks are grouped by functions; with --address or --offset by addresses.",
		"--stack-storage-size has no effect: the number of stacks is not limited.",
	},
	Examples: []string{
		"offwaketime 10                                  # all threads, ten seconds",
		"offwaketime -p 1234 --output svg 10 > wait.svg  # a flame graph of one process",
		"offwaketime -u -m 1000 -f 5                     # waits of 1 ms or more, folded",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t"},
}, options{StackOptions: source.DefaultStacks(), Sides: source.DefaultSides(), Waits: source.DefaultWaits(), State: -1}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Stacks[key, counts, row]{
		Plan:         tool.Plan{Variables: o.Waits.Variables()},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "total_ns",
		Unit:   source.Nanoseconds,
		Label:  label,
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts:  o.parts,
	}, nil
}

func label(k *key, t *stacktrace.Traces) row {
	n := &k.Note
	return row{
		PID: k.PID, TID: k.TID, Comm: k.Comm, WakerPID: n.WakerPID, WakerTID: n.WakerTID, Waker: value.Name(n.Waker.String()),
		KernelStack: t.Trace(n.Kernel), UserStack: t.Trace(n.User),
		WakerKernelStack: t.Trace(n.WakerKernel), WakerUserStack: t.Trace(n.WakerUser), CgroupID: k.CgroupID,
	}
}

// parts returns the frames of the waiting thread and, in reverse order, those of the waker.
func (o *options) parts(r *row) []source.Part {
	parts := source.TaskParts(r.Comm.String(), r.TID, r.UserStack, r.KernelStack, o.Delimited)
	parts[0].Title = "target:"
	if r.Waker == "" {
		return parts
	}
	parts = append(parts, source.Part{Label: "--", Mark: true}, source.Part{Trace: r.WakerKernelStack, Reverse: true})
	if o.Delimited && !r.WakerKernelStack.Absent() && !r.WakerUserStack.Absent() {
		parts = append(parts, source.Part{Label: "-", Mark: true})
	}
	return append(parts,
		source.Part{Trace: r.WakerUserStack, Reverse: true},
		source.Part{Label: string(r.Waker), Title: "waker:", More: fmt.Sprintf(" (%d)", r.WakerTID)},
	)
}
