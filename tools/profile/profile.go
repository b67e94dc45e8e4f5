// Package profile samples stack traces on CPUs.
package profile

import (
	"cmp"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh profile.bpf.c

type options struct {
	source.Stop
	source.StackOptions
	source.Sides
	Frequency uint64 `flag:"frequency,F" arg:"HZ" min:"1" max:"100000" help:"samples per second and CPU"`
	Period    uint64 `flag:"count,c" arg:"NS" min:"10000" max:"9223372036854775807" help:"sample period in nanoseconds of CPU clock, instead of --frequency"`
	Idle      bool   `flag:"include-idle,I" bpf:"include_idle" help:"include idle CPUs"`
	CPU       []int  `flag:"cpu,C" arg:"CPU" min:"0" id:"cpu" help:"only these CPUs"`
	HashSize  uint64 `flag:"hash-storage-size" arg:"N" help:"no effect: counts are read from the kernel's map meanwhile"`
}

// Mirrors of struct table_key and struct table_value.
type (
	key struct {
		Kernel   stacktrace.StackID `btf:"kernel_stack"`
		User     stacktrace.StackID `btf:"user_stack"`
		CgroupID uint64
		PID      uint32
		Comm     value.Comm
		_        uint32
	}
	counts struct{ Count uint64 }
)

type row struct {
	PID         uint32      `json:"pid" col:"PID,width=7" help:"process that ran, in the initial PID namespace; 0 for idle CPUs (--include-idle)"`
	Comm        value.Comm  `json:"comm" col:"COMM,width=16" help:"name of the thread that ran"`
	Count       uint64      `json:"count" col:"COUNT,width=10,right" help:"number of samples"`
	KernelStack value.Trace `json:"kernel_stack" help:"kernel stack trace, innermost frame first; absent if the sample is from user space"`
	UserStack   value.Trace `json:"user_stack" help:"user stack trace, innermost frame first; absent for kernel threads"`
	CgroupID    uint64      `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"ID of the thread's cgroup: inode number of its directory"`
}

// Tool is the definition of profile.
var Tool = tool.Define(tool.Spec{
	Name:     "profile",
	Category: "scheduler",
	Summary:  "CPU profiler: sample kernel and user stack traces on all CPUs, for flame graphs",
	Description: `Samples the stack trace of the running thread on each CPU at regular intervals and counts the stack traces, which shows where CPU time is spent.

Samples are triggered by the CPU clock of perf events (PERF_COUNT_SW_CPU_CLOCK), 49 times a second, so that they do not coincide with activities that occur 50 or 100 times a second. Idle CPUs are not sampled. CPUs that come online later are sampled from then on.

The kernel can take fewer samples than are due, as when the timer expires too late at high frequencies, or for process 1 of a guest that hides it. These are counted as lost (unobserved), for all CPUs that are sampled: a sample that is not taken belongs to no task, so with a task filter they can be samples of other tasks.`,
	Peers: []string{
		"-p is --pid and -L is --tid.",
		"Stacks are grouped by functions; with --address or --offset by addresses.",
		"--stack-storage-size and --hash-storage-size have no effect: the number of stacks is not limited. Stacks with equal hashes are not lost.",
		"-c is a period in nanoseconds, as in BCC, for the same perf event.",
		"--cgroupmap and --mntnsmap are those of BCC: they select by the keys of a pinned map. --cgroup and --container need no map.",
	},
	Overhead: "4 to 9 us per sample, depending on the depth of stacks: 0.2 % of a CPU at 99 Hz on two busy CPUs (virtual machine, kernel 6.18), with frame pointers (--unwind fp). With unwind tables the process uses 0.6 % of a CPU while sampling, and 1.7 % over 20 s including its start and reading the kernel's symbols. With tables a frame takes about 0.1 us more, and each new file 1 to 200 ms of CPU time.",
	Examples: []string{
		"profile 10                            # ten seconds, 49 samples per second and CPU",
		"profile -F 99 -f --duration 30s       # folded stacks, for flame graph programs",
		"profile -U -p 1234                    # user stacks of one process, until Ctrl-C",
		"profile --output svg 10 > cpu.svg      # a flame graph for a browser; --output html is a page",
		"profile --output pprof 10 > cpu.pb.gz  # for go tool pprof",
		"profile --output json --interval 10   # rows, every ten seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "L", "annotations": "a", "address": "A"},
}, options{StackOptions: source.DefaultStacks(), Sides: source.DefaultSides(), Frequency: 49}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Stacks[key, counts, row]{
		Plan: tool.Plan{
			Sampling: tool.Sampling{Frequency: o.Frequency, Period: o.Period, CPUs: o.CPU},
			Resolve:  o.checkFrequency,
		},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "count",
		Unit:   source.Samples,
		Period: cmp.Or(o.Period, uint64(time.Second)/o.Frequency),
		Label: func(k *key, t *stacktrace.Traces) row {
			return row{PID: k.PID, Comm: k.Comm, KernelStack: t.Trace(k.Kernel), UserStack: t.Trace(k.User), CgroupID: k.CgroupID}
		},
		Fill:   func(r *row, c *counts) { r.Count = c.Count },
		Weight: func(r *row) uint64 { return r.Count },
		Parts: func(r *row) []source.Part {
			return source.TaskParts(r.Comm.String(), r.PID, r.UserStack, r.KernelStack, o.Delimited)
		},
	}, nil
}

// checkFrequency returns an error if the frequency exceeds the limit of the kernel.
func (o *options) checkFrequency(*tool.Plan, *tool.Kernel) error {
	if o.Period > 0 {
		return nil
	}
	return source.CheckFrequency(o.Frequency)
}
