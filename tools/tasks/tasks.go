// Package tasks lists processes and threads.
package tasks

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tasks.bpf.c

type options struct {
	Threads bool `flag:"threads,T" bpf:"targ_threads" help:"list threads, each with what it has used itself"`
}

type usage struct {
	CPU                 value.Elapsed `json:"cpu_ns" col:"CPU(s),width=10,right" help:"time on a CPU, as the scheduler measures it, up to the last tick or switch: of all threads, those that have ended too; with -T of the thread; text shows seconds" btf:"cpu_ns"`
	User                value.Elapsed `json:"user_ns" col:"USER(s),width=10,right" help:"of cpu_ns, the part in user mode: shared out as the kernel's clock ticks have found it (as /proc/PID/stat does), but for kernels that measure it" btf:"user_ns"`
	System              value.Elapsed `json:"system_ns" col:"SYSTEM(s),width=10,right" help:"the rest of cpu_ns, in the kernel" btf:"system_ns"`
	VoluntarySwitches   uint64        `json:"voluntary_switches" col:"VSWITCH,width=8,right" help:"times that it gave up the CPU to wait"`
	InvoluntarySwitches uint64        `json:"involuntary_switches" col:"ISWITCH,width=8,right" help:"times that the CPU was taken from it"`
	MinorFaults         uint64        `json:"minor_faults" col:"MINFLT,width=8,right" help:"page faults without I/O"`
	MajorFaults         uint64        `json:"major_faults" col:"MAJFLT,width=8,right" help:"page faults that waited for I/O"`
}

type event struct {
	value.Task
	Start value.Time `json:"start" col:"START,width=8" help:"when it was made, by fork or clone, wall time (CLOCK_BOOTTIME then)" btf:"start_ns"`
	usage
	RSSPages     uint64
	SwapPages    uint64
	VirtualPages uint64
	PPID         uint32 `json:"ppid" col:"PPID,width=7" help:"process id of the parent, in the initial PID namespace"`
	Threads      uint32 `json:"threads" col:"THR,width=4,right" help:"threads of the process"`
	Nice         int32  `json:"nice" col:"NI,width=3,right" help:"nice value"`
	RTPriority   uint32 `json:"rt_priority" col:"RTPRIO,width=6,right" help:"priority under fifo and rr, else 0"`
	PolicyNr     uint32 `btf:"policy"`
	StateNr      uint32 `btf:"state"`
	NSPID        uint32 `json:"ns_pid" col:"NSPID,width=7" help:"process id (with -T thread id) in its own PID namespace"`
	PIDNS        uint32 `json:"pidns" col:"PIDNS,width=10" help:"its PID namespace: inode of /proc/PID/ns/pid; 0 for a task that has ended"`
	Kernel       bool   `json:"kernel" col:"KERNEL,width=6" help:"a thread of the kernel"`
	WantArgs     bool
	_            [6]byte
}

type row struct {
	event
	Age     value.Elapsed `json:"age_ns" col:"AGE(s),width=12,right" help:"time from start to time (CLOCK_BOOTTIME); text shows seconds"`
	State   string        `json:"state" col:"S,width=1" help:"state as in /proc/PID/stat: R runs or could, S sleeps, D sleeps and cannot be woken by signals, T is stopped, t is traced, X and Z have ended, P is parked, I is an idle kernel thread; of a process, that of its first thread"`
	Policy  string        `json:"policy" col:"POLICY,width=8" help:"scheduling policy: other, fifo, rr, batch, idle, deadline, ext"`
	RSS     value.Size    `json:"rss_bytes" col:"RSS_KB,width=10,right" help:"memory of the process that is present: file, anonymous and shared pages; from 6.2 on with what each CPU has counted and not yet added, where that can be read; before, without what each thread has (up to 64 pages); text shows units of 1,024"`
	Swap    value.Size    `json:"swap_bytes" col:"SWAP_KB,width=10,right" help:"its memory that is swapped out, likewise"`
	Virtual value.Size    `json:"virtual_bytes" col:"VIRTUAL_KB,width=10,right" help:"its address space"`
	Args    value.List    `json:"args" col:"ARGS,width=30,extra,need=want_args" help:"its arguments, from /proc/PID/cmdline; absent for kernel threads and where the process has ended"`

	page value.Size
}

const states = "RSDTtXZPI"

var policies = [...]string{0: "other", "fifo", "rr", "batch", 5: "idle", "deadline", "ext"}

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	r.Age = value.Elapsed(r.Time - r.Start)
	r.share()
	r.RSS, r.Swap, r.Virtual = r.page*value.Size(r.RSSPages), r.page*value.Size(r.SwapPages), r.page*value.Size(r.VirtualPages)
	r.State = states[r.StateNr : r.StateNr+1]
	r.Policy = ""
	if int(r.PolicyNr) < len(policies) {
		r.Policy = policies[r.PolicyNr]
	}
	r.Args = nil
	if r.WantArgs && !r.Kernel {
		r.Args, _ = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.TID))
	}
	return nil
}

// share makes user and system time parts of the time on a CPU, which is exact.
func (r *row) share() {
	switch {
	case r.System == 0:
		r.User = r.CPU
	case r.User == 0:
		r.System = r.CPU
	default:
		hi, lo := bits.Mul64(uint64(r.CPU), uint64(r.System))
		system, _ := bits.Div64(hi, lo, uint64(r.User+r.System))
		r.System = value.Elapsed(system)
		r.User = r.CPU - r.System
	}
}

// Tool is tasks.
var Tool = tool.Define(tool.Spec{
	Name:     "tasks",
	Category: "process",
	Summary:  "List processes and threads",
	Description: `Lists the processes that are there, or with -T all threads, those of the kernel among them, in the order of their ids. It tells what ps tells, from the kernel's own structures, with the columns, filters and outputs of all tools here.

A task is looked at for a moment, not stopped: what a row has was true within microseconds of its time, and what two rows have need not have been true at once. A process of several threads is gone through once more before, to add up what its threads have used.

Only tasks of the PID namespace that corescope runs in are listed.`,
	Peers: []string{
		"There is no tool of this name in BCC or libbpf-tools. BCC's bps is bpflist here.",
	},
	Examples: []string{
		"tasks                                # all processes",
		"tasks --container web --columns +args # those of a container, with their arguments",
		"tasks -T --filter 'state == \"D\"'     # threads that cannot be woken",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	perCPU, err := env.PerCPU()
	if err != nil && !errors.Is(err, tool.ErrUnsupported) {
		return nil, err
	}
	list := &tool.List[row]{
		Plan:      tool.Plan{Variables: perCPU},
		Columns:   []string{"pid", "ppid", "user", "state", "threads", "cpu_ns", "rss_bytes", "age_ns", "comm"},
		Row:       row{page: value.Size(os.Getpagesize())},
		Iterators: []tool.Iterator{{Program: "threads"}, {Program: "tasks"}},
	}
	if o.Threads {
		list.Columns = []string{"pid", "tid", "user", "state", "cpu_ns", "age_ns", "comm"}
		list.Iterators = list.Iterators[1:]
	}
	return list, nil
}
