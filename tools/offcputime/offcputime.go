// Package offcputime shows off-CPU time of threads by stack trace.
package offcputime

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh offcputime.bpf.c

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
		Kernel stacktrace.StackID `btf:"kernel_stack"`
		User   stacktrace.StackID `btf:"user_stack"`
		Holder holder

		HolderKernel stacktrace.StackID `btf:"holder_kernel_stack"`
		HolderUser   stacktrace.StackID `btf:"holder_user_stack"`
	}
	holder struct {
		TID, PID uint32
		Comm     value.Comm
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
	PID          uint32        `json:"pid" col:"PID,width=7" help:"process that waited, in the initial PID namespace"`
	TID          uint32        `json:"tid" col:"TID,width=7" help:"thread that waited"`
	Comm         value.Comm    `json:"comm" col:"COMM,width=16" help:"name of the thread at the end of the wait"`
	Ns           value.Micros  `json:"total_ns" col:"TIME (us),width=12,right" help:"time off the CPU: from sched_switch away from the thread to sched_switch back to it, CLOCK_MONOTONIC, sum of all waits; text shows microseconds"`
	Count        uint64        `json:"count" col:"COUNT,width=10,right" help:"number of waits, counted when they end"`
	KernelStack  value.Trace   `json:"kernel_stack" help:"kernel stack trace of the wait, innermost frame first"`
	UserStack    value.Trace   `json:"user_stack" help:"user stack trace of the wait, innermost frame first; absent for kernel threads"`
	Holder       value.Name    `json:"holder" col:"HOLDER,width=16,extra,need=want_holder" help:"name of the thread that held the lock when the wait began; absent if it is unknown, or the wait is not for a lock"`
	HolderTID    value.Nonzero `json:"holder_tid" col:"HOLDER TID,width=10,extra,need=want_holder" help:"that thread, in the initial PID namespace; absent if unknown"`
	HolderPID    value.Nonzero `json:"holder_pid" col:"HOLDER PID,width=10,extra,need=want_holder" help:"its process; absent if unknown"`
	HolderKernel value.Trace   `json:"holder_kernel_stack" col:"HOLDER KERNEL STACK,extra,need=want_holder_stack" help:"kernel stack trace of the holder when it released the lock and thereby woke the thread, innermost frame first; absent if another thread woke it"`
	HolderUser   value.Trace   `json:"holder_user_stack" col:"HOLDER USER STACK,extra,need=want_holder_stack" help:"user stack trace of the holder at that time, innermost frame first; absent for kernel threads, and if another thread woke the waiting one"`
	CgroupID     uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"ID of the thread's cgroup: inode number of its directory"`
}

// Tool is the definition of offcputime.
var Tool = tool.Define(tool.Spec{
	Name:     "offcputime",
	Category: "scheduler",
	Summary:  "Off-CPU time (blocked or waiting for a CPU) of threads by stack trace",
	Description: `Measures the time that threads spend off the CPU, summed by the stack trace in which they wait: for locks, disks, the network, timers and CPUs.

A wait begins when a thread leaves the CPU (sched_switch), either blocked or preempted, and ends when it runs again. The time therefore includes blocking and the run queue latency after the wake-up. --state 0 selects only runnable threads, and --state 3 only blocked threads. A wait is counted when it ends, with its whole length. Waits that have not ended when the tool stops are not counted, nor are those that began before it started. Idle CPUs are not included.

Most time is usually spent by threads that sleep on purpose. Select one program, or look for stack traces that are known to delay something.

The columns holder, holder_tid and holder_pid, which --columns can add (+holder,+holder_tid), name the thread that held the lock when the wait began. For mutexes and rw_semaphores of the kernel it is the owner of the lock; a rw_semaphore that readers hold has none. They need the tracepoints contention_begin and contention_end (Linux 5.19); without them the run ends with exit code 4. For futexes it is known as in futexctn(8). For all other waits they are absent. In stacks, the holder is the outermost frame.

The columns holder_kernel_stack and holder_user_stack are the stack traces of that thread when it released the lock: they are taken in its context when it wakes the waiting thread (sched_waking), in the function of the kernel that unlocks, or in the call of futex(2) with which it unlocks. The thread still is in the code that held the lock. They are absent if another thread woke the waiting one, as when several threads waited and the lock passed through one of them first, and if the holder is unknown. They also need Linux 5.19. In stacks, they are between the holder and the waiting thread: a flame graph shows which code held the locks.

In flame graphs, the colour of kernel functions shows what is waited for: locks, disks, the network, pipes and events, timers, child processes.`,
	Peers: []string{
		"-p is --pid and -t is --tid.",
		"Stacks are grouped by functions; with -s or --address by addresses. libbpf-tools shows a stack once per distinct address.",
		"The stack frames of the tool itself are left out.",
		"--state is a mask, as in BCC; libbpf-tools requires the exact state.",
		"--stack-storage-size has no effect: the number of stacks is not limited.",
	},
	Overhead: "About 7 us per context switch away from a thread (all threads, 10,000 times a second, busy virtual machine, kernel 6.18). Most of it is unwinding by frame pointers; with unwind tables a user frame takes about 0.1 us more. Filters are checked before that.",
	Examples: []string{
		"offcputime 10                                  # all threads, ten seconds",
		"offcputime -p 1234 --output svg 10 > off.svg   # a flame graph of one process",
		"offcputime -u -m 1000 -f 5                     # waits of 1 ms or more, folded",
		"offcputime --state 2 --columns +holder,+holder_tid 10  # who held the locks that were waited for",
		"offcputime --columns +holder_kernel_stack,+holder_user_stack -f 10  # in which code the holders held them, folded",
		"offcputime --state 2 --interval 10             # uninterruptible waits, every ten seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "offset": "s"},
}, options{StackOptions: source.DefaultStacks(), Sides: source.DefaultSides(), Waits: source.DefaultWaits(), State: -1}, build)

// wantHolder completes a plan for the stack of the holder: it needs the holder.
func wantHolder(p *tool.Plan) error {
	p.Variables["want_holder"] = true
	return nil
}

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Stacks[key, counts, row]{
		Plan: tool.Plan{
			Variables: o.Waits.Variables(),
			Features: map[string]tool.Feature{
				"want_holder":       {Hooks: []string{"contention"}, Functions: []string{"lock_holder_read"}},
				"want_holder_stack": {Hooks: []string{"waking"}, Complete: wantHolder},
			},
		},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort: "total_ns",
		Unit: source.Nanoseconds,
		Label: func(k *key, t *stacktrace.Traces) row {
			h := k.Note.Holder
			return row{PID: k.PID, TID: k.TID, Comm: k.Comm, Holder: value.NameOf(h.Comm[:]), HolderTID: value.Nonzero(h.TID), HolderPID: value.Nonzero(h.PID), KernelStack: t.Trace(k.Note.Kernel), UserStack: t.Trace(k.Note.User), HolderKernel: t.Trace(k.Note.HolderKernel), HolderUser: t.Trace(k.Note.HolderUser), CgroupID: k.CgroupID}
		},
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts: func(r *row) []source.Part {
			parts := source.TaskParts(r.Comm.String(), r.TID, r.UserStack, r.KernelStack, o.Delimited)
			if r.HolderTID != 0 {
				holder := source.TaskParts("holder: "+string(r.Holder), uint32(r.HolderTID), r.HolderUser, r.HolderKernel, o.Delimited)
				parts = append(holder, parts...)
			}
			return parts
		},
	}, nil
}
