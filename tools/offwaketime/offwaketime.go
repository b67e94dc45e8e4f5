// Package offwaketime shows by stacks where threads wait, and who wakes them.
package offwaketime

import (
	"fmt"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh offwaketime.bpf.c

type options struct {
	tool.Stop
	tool.StackOptions
	tool.Sides
	tool.Waits
	State int64 `flag:"state" arg:"MASK" bpf:"targ_state" help:"only waits that begin in one of these states of the kernel: 1 interruptible, 2 uninterruptible; 0 are threads that could run on, -1 is all"`
}

// key is struct table_key, note struct off_note, counts struct table_value.
type (
	note struct {
		Kernel      tool.StackID `btf:"kernel_stack"`
		User        tool.StackID `btf:"user_stack"`
		WakerKernel tool.StackID `btf:"waker_kernel_stack"`
		WakerUser   tool.StackID `btf:"waker_user_stack"`
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
	TID              uint32       `json:"tid" col:"TID,width=7" help:"its thread"`
	Comm             value.Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread as it came back"`
	WakerPID         uint32       `json:"waker_pid" col:"WAKER_PID,width=9" help:"process that woke it; 0 for an idle CPU, and where nobody did"`
	WakerTID         uint32       `json:"waker_tid" col:"WAKER_TID,width=9" help:"its thread"`
	Waker            value.Name   `json:"waker" col:"WAKER,width=16" help:"name of the thread that woke it, in an interrupt of the one which was interrupted; absent where nobody did, as for those that could run on"`
	Ns               value.Micros `json:"total_ns" col:"TIME (us),width=12,right" help:"time off the CPU: from sched_switch to the thread's next sched_switch, CLOCK_MONOTONIC, of all these waits; text shows microseconds"`
	Count            uint64       `json:"count" col:"COUNT,width=10,right" help:"these waits; each counts when it ends"`
	KernelStack      value.Trace  `json:"kernel_stack" help:"the kernel's functions that waited, the innermost first"`
	UserStack        value.Trace  `json:"user_stack" help:"the process's functions that had called them, the innermost first; absent for threads of the kernel"`
	WakerKernelStack value.Trace  `json:"waker_kernel_stack" help:"the waker's functions in the kernel as it woke the thread (sched_waking), the innermost first"`
	WakerUserStack   value.Trace  `json:"waker_user_stack" help:"the waker's own functions, the innermost first"`
	CgroupID         uint64       `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"id of the cgroup of the thread that waited: inode of its directory"`
}

// Tool is offwaketime.
var Tool = tool.Define(tool.Spec{
	Name:     "offwaketime",
	Category: "scheduler",
	Summary:  "Show how long threads are off the CPU, by their stacks and by who wakes them",
	Description: `Measures how long threads wait, as offcputime does, and adds it up by the stacks that they waited in, and by the thread that woke them and its stacks.

A wait begins when a thread leaves the CPU (sched_switch), and ends when it is back. Who wakes it is seen at sched_waking, in the waker's context; the first one counts. Waits that nobody ends, as those of preempted threads, have no waker. In an interrupt the waker is the thread that was interrupted, or an idle CPU (swapper): the stack says what happened.

Folded stacks and flame graphs have the waker on top, upside down: the place where both meet is in the middle.`,
	Peers: []string{
		"-p is --pid and -t is --tid; they and the other filters are of the thread that waits.",
		"Stacks of the same functions are one, whichever addresses in them were hit; --address and --offset tell these apart.",
		"--stack-storage-size means nothing: there is no limit.",
	},
	Examples: []string{
		"offwaketime 10                                  # all threads, ten seconds",
		"offwaketime -p 1234 --output svg 10 > wait.svg  # a flame graph of one process",
		"offwaketime -u -m 1000 -f 5                     # waits of 1 ms and more, folded",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t"},
}, options{StackOptions: tool.DefaultStacks(), Sides: tool.DefaultSides(), Waits: tool.DefaultWaits(), State: -1}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &tool.Stacks[key, counts, row]{
		Plan:         tool.Plan{Duration: o.Duration, Variables: o.Waits.Variables()},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "total_ns",
		Unit:   tool.Nanoseconds,
		Label:  label,
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts:  o.parts,
	}, nil
}

func label(k *key, t *tool.Traces) row {
	n := &k.Note
	return row{
		PID: k.PID, TID: k.TID, Comm: k.Comm, WakerPID: n.WakerPID, WakerTID: n.WakerTID, Waker: value.Name(n.Waker.String()),
		KernelStack: t.Of(n.Kernel), UserStack: t.Of(n.User),
		WakerKernelStack: t.Of(n.WakerKernel), WakerUserStack: t.Of(n.WakerUser), CgroupID: k.CgroupID,
	}
}

// parts are those of the thread that waited, and on top of them the waker's, upside down.
func (o *options) parts(r *row) []tool.Part {
	parts := tool.TaskParts(r.Comm.String(), r.TID, r.UserStack, r.KernelStack, o.Delimited)
	parts[0].Title = "target:"
	if r.Waker == "" {
		return parts
	}
	parts = append(parts, tool.Part{Label: "--", Mark: true}, tool.Part{Trace: r.WakerKernelStack, Reverse: true})
	if o.Delimited && !r.WakerKernelStack.Absent() && !r.WakerUserStack.Absent() {
		parts = append(parts, tool.Part{Label: "-", Mark: true})
	}
	return append(parts,
		tool.Part{Trace: r.WakerUserStack, Reverse: true},
		tool.Part{Label: string(r.Waker), Title: "waker:", More: fmt.Sprintf(" (%d)", r.WakerTID)},
	)
}
