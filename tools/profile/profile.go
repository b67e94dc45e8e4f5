// Package profile samples the stacks of what runs.
package profile

import (
	"cmp"
	"errors"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh profile.bpf.c

type options struct {
	tool.Stop
	tool.StackOptions
	tool.Sides
	Frequency uint64 `flag:"frequency,F" arg:"HZ" help:"samples a second of each CPU"`
	Period    uint64 `flag:"count,c" arg:"NS" help:"a sample each NS nanoseconds of a CPU's clock, not by --frequency"`
	Idle      bool   `flag:"include-idle,I" bpf:"include_idle" help:"sample idle CPUs too"`
	CPU       []int  `flag:"cpu,C" arg:"CPU" help:"only these CPUs"`
	HashSize  uint64 `flag:"hash-storage-size" arg:"N" help:"means nothing: the counts are taken out of the kernel's map each second"`
}

// key is struct table_key, counts struct table_value.
type (
	key struct {
		Kernel   tool.StackID `btf:"kernel_stack"`
		User     tool.StackID `btf:"user_stack"`
		CgroupID uint64
		PID      uint32
		Comm     value.Comm
		_        uint32
	}
	counts struct{ Count uint64 }
)

type row struct {
	PID         uint32      `json:"pid" col:"PID,width=7" help:"process that ran, in the initial PID namespace; 0 for idle CPUs (--include-idle)"`
	Comm        value.Comm  `json:"comm" col:"COMM,width=16" help:"name of its thread"`
	Count       uint64      `json:"count" col:"COUNT,width=10,right" help:"samples"`
	KernelStack value.Trace `json:"kernel_stack" help:"the kernel's functions that ran, the innermost first; absent where the sample was taken in user space"`
	UserStack   value.Trace `json:"user_stack" help:"the process's functions, the innermost first: those that ran, or that had called the kernel; absent for threads of the kernel"`
	CgroupID    uint64      `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"id of the thread's cgroup: inode of its directory"`
}

// Tool is profile.
var Tool = tool.Define(tool.Spec{
	Name:     "profile",
	Category: "scheduler",
	Summary:  "Sample the stacks of what runs on the CPUs",
	Description: `Looks at what runs on each CPU at regular times, and counts the stacks that it sees: where CPU time goes.

The samples are those of a CPU's clock (PERF_COUNT_SW_CPU_CLOCK), 49 a second, so that they do not keep step with what is done 50 or 100 times a second. Idle CPUs are left out. CPUs that come online are sampled from then on.`,
	Peers: []string{
		"-p is --pid and -L is --tid.",
		"Stacks of the same functions are one, whichever addresses in them were hit; --address and --offset tell these apart.",
		"--stack-storage-size and --hash-storage-size mean nothing: there is no limit. No stack is lost to another with the same hash.",
		"-c counts nanoseconds, as in BCC, whose -c is the period of the same event.",
		"--cgroupmap and --mntnsmap (BCC) are not there; there are --cgroup and --container.",
	},
	Overhead: "4 to 9 us a sample, depending on how deep stacks are: 0.2 % of a CPU at 99 Hz on two busy ones (virtual machine, kernel 6.18). These are stacks by frame pointers (--unwind fp). With the process itself it is 0.6 % of a CPU while it samples, by tables, and 1.7 % over 20 s with what comes once, as its start and the kernel's names. By tables a frame takes about 0.1 us more, and a file that is seen first 1 to 200 ms of CPU time.",
	Examples: []string{
		"profile 10                            # ten seconds, 49 samples a second of each CPU",
		"profile -F 99 -f --duration 30s       # folded stacks, for flame graph programs",
		"profile -U -p 1234                    # user stacks of one process, until Ctrl-C",
		"profile --output svg 10 > cpu.svg      # a flame graph for a browser; --output html is a page",
		"profile --output pprof 10 > cpu.pb.gz  # for go tool pprof",
		"profile --output json --interval 10   # rows each ten seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "L", "annotations": "a", "address": "A"},
}, options{StackOptions: tool.DefaultStacks(), Sides: tool.DefaultSides(), Frequency: 49}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Frequency == 0 {
		return nil, errors.New("--frequency 0: no samples")
	}
	return &tool.Stacks[key, counts, row]{
		Plan: tool.Plan{
			Duration: o.Duration,
			Sampling: tool.Sampling{Frequency: o.Frequency, Period: o.Period, CPUs: o.CPU},
		},
		StackOptions: o.StackOptions, UserStacks: o.UserStacks, KernelOnly: o.KernelOnly,
		Sort:   "count",
		Unit:   tool.Samples,
		Period: cmp.Or(o.Period, uint64(time.Second)/o.Frequency),
		Label: func(k *key, t *tool.Traces) row {
			return row{PID: k.PID, Comm: k.Comm, KernelStack: t.Of(k.Kernel), UserStack: t.Of(k.User), CgroupID: k.CgroupID}
		},
		Fill:   func(r *row, c *counts) { r.Count = c.Count },
		Weight: func(r *row) uint64 { return r.Count },
		Parts: func(r *row) []tool.Part {
			return tool.TaskParts(r.Comm.String(), r.PID, r.UserStack, r.KernelStack, o.Delimited)
		},
	}, nil
}
