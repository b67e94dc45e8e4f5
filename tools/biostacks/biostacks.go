// Package biostacks shows how long block I/O takes, by who submits it and from where.
package biostacks

import (
	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biostacks.bpf.c

type options struct {
	blockio.Options
	tool.Milliseconds
	tool.Stop
	tool.Frames
	Every flags.Duration `flag:"interval" arg:"TIME" help:"time between reports; one report at the end without it"`
}

// histKey is struct hist_key.
type histKey struct {
	Stack    tool.StackID
	PID, Dev uint32
	Comm     value.Comm
}

type label struct {
	Comm        value.Comm  `json:"comm" col:"COMM,bare" help:"name of the thread that submitted the I/O"`
	PID         uint32      `json:"pid" col:"PID,bare" help:"its process, in the initial PID namespace"`
	Disk        string      `json:"disk" col:"DISK,bare" help:"disk that the I/O is for"`
	KernelStack value.Trace `json:"kernel_stack" help:"the kernel's functions that submitted it, the innermost first"`
}

// Tool is biostacks.
var Tool = tool.Define(tool.Spec{
	Name:     "biostacks",
	Category: "block",
	Summary:  "Show how long block I/O takes, by process and kernel stack",
	Description: `Measures how long each request to a disk takes, from when it is submitted to when it is complete, and shows it as a histogram for each process, disk and stack of the kernel's functions that submitted it: which of reads, faults, logs of file systems and write-back it is that is slow.

The time begins with the tracepoint block_io_start (kernel 6.5 and later), or else when the request is first inserted or issued, and ends with block_rq_complete; CLOCK_MONOTONIC. What waits in a queue is in it. The stack and the process are those of the task that is current at the beginning: the one that reads or waits, or a thread of the kernel that writes back what others have written. What is merged into a request is a part of it, and has its stack.

Disks that are given no requests, of the device mapper, md and zram, are seen by the disks below them.

The counters at the end are those of biolatency(8).`,
	Peers: []string{
		"Kernels 5.17 to 6.4 have no function that libbpf-tools could be attached to; the tracepoints here are in all.",
		"A request that another one is merged into keeps the stack of its beginning; libbpf-tools shows that of the last merge.",
		"Stacks of the same functions are one; --address tells addresses apart.",
		"A request that is completed in parts is one I/O.",
	},
	Overhead: "That of biolatency, and the walk through the kernel's stack at each submission: 3.3 us there, 0.7 us at the insertion, the issue and the completion together (10,000 reads of a loop device, a busy virtual machine with kernel 6.18).",
	Examples: []string{
		"biostacks 10                        # all I/O of ten seconds",
		"biostacks -d nvme0n1 -m --interval 5  # of one disk, in milliseconds, each five seconds",
		"biostacks --pid 1234                # what one process waits for",
		"biostacks --filter 'p99 > 10000' 60 # where one in a hundred takes 10 ms",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{Frames: tool.DefaultFrames()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Duration = o.Duration
	plan.Variables["want_owner"] = true
	return &tool.Hists[histKey, label]{
		Plan:     plan,
		Interval: tool.Interval{Rounds: tool.Rounds{Every: o.Every}},
		Unit:     o.Unit(),
		Keys:     []string{"comm", "pid", "disk", "kernel_stack"},
		Stacks:   &o.Frames,
		Trace: func(k histKey, t *tool.Traces) label {
			return label{Comm: k.Comm, PID: k.PID, Disk: blockio.DiskName(k.Dev, env), KernelStack: t.Of(k.Stack)}
		},
	}, nil
}
