// Package offcputime shows by stacks where threads wait.
package offcputime

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh offcputime.bpf.c

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
		Kernel tool.StackID `btf:"kernel_stack"`
		User   tool.StackID `btf:"user_stack"`
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
	PID         uint32       `json:"pid" col:"PID,width=7" help:"process that waited, in the initial PID namespace"`
	TID         uint32       `json:"tid" col:"TID,width=7" help:"its thread"`
	Comm        value.Comm   `json:"comm" col:"COMM,width=16" help:"name of the thread as it came back"`
	Ns          value.Micros `json:"total_ns" col:"TIME (us),width=12,right" help:"time off the CPU: from sched_switch to the thread's next sched_switch, CLOCK_MONOTONIC, of all these waits; text shows microseconds"`
	Count       uint64       `json:"count" col:"COUNT,width=10,right" help:"these waits; each counts when it ends"`
	KernelStack value.Trace  `json:"kernel_stack" help:"the kernel's functions that waited, the innermost first"`
	UserStack   value.Trace  `json:"user_stack" help:"the process's functions that had called them, the innermost first; absent for threads of the kernel"`
	CgroupID    uint64       `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"id of the thread's cgroup: inode of its directory"`
}

// Tool is offcputime.
var Tool = tool.Define(tool.Spec{
	Name:     "offcputime",
	Category: "scheduler",
	Summary:  "Show how long threads are off the CPU, by their stacks",
	Description: `Measures how long threads wait, and adds it up by the stacks that they waited in: for locks, disks, the network, timers, and for a CPU.

A wait begins when a thread leaves the CPU (sched_switch), blocked or because another one had to run, and ends when it is back: the time until it was woken and the time that it waited for a CPU then. --state 0 are the waits for a CPU alone, and --state 3 those of blocked threads. A wait counts when it ends, with its whole length; one that has not ended when the tool does is not counted, nor is one that began before the tool did. Idle CPUs do not wait.

Threads that sleep for most of their lives wait most: look at one program, or for stacks that you know to be in the way of something.

In flame graphs the kernel's functions have the colour of what is waited for: locks, disks, the network, pipes and events, timers, children.`,
	Peers: []string{
		"-p is --pid and -t is --tid.",
		"Stacks of the same functions are one, whichever addresses in them were hit; -s and --address tell these apart. libbpf-tools shows one that it has seen at several addresses several times.",
		"The frames of the tool itself are left out.",
		"--state is a mask as in BCC; libbpf-tools wants the very state.",
		"--stack-storage-size means nothing: there is no limit.",
	},
	Overhead: "About 7 us each time that a thread leaves a CPU (all threads, 10,000 times a second, a busy virtual machine with kernel 6.18): most of it is the walk through its stacks, by frame pointers; by tables a frame of the process takes about 0.1 us more. Filters come before that.",
	Examples: []string{
		"offcputime 10                                  # all threads, ten seconds",
		"offcputime -p 1234 --output svg 10 > off.svg   # a flame graph of one process",
		"offcputime -u -m 1000 -f 5                     # waits of 1 ms and more, folded",
		"offcputime --state 2 --interval 10             # uninterruptible waits, each ten seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "offset": "s"},
}, options{StackOptions: tool.DefaultStacks(), Sides: tool.DefaultSides(), Waits: tool.DefaultWaits(), State: -1}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &tool.Stacks[key, counts, row]{
		Plan:         tool.Plan{Duration: o.Duration, Variables: o.Waits.Variables()},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort: "total_ns",
		Unit: tool.Nanoseconds,
		Label: func(k *key, t *tool.Traces) row {
			return row{PID: k.PID, TID: k.TID, Comm: k.Comm, KernelStack: t.Of(k.Note.Kernel), UserStack: t.Of(k.Note.User), CgroupID: k.CgroupID}
		},
		Fill:   func(r *row, c *counts) { r.Ns, r.Count = value.Micros(c.Ns), c.Count },
		Weight: func(r *row) uint64 { return uint64(r.Ns) },
		Parts: func(r *row) []tool.Part {
			return tool.TaskParts(r.Comm.String(), r.TID, r.UserStack, r.KernelStack, o.Delimited)
		},
	}, nil
}
