// Package tasks lists processes and threads.
package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tasks.bpf.c

type options struct {
	Threads bool `flag:"threads,T" bpf:"targ_threads" help:"list threads, with the resources used by each"`
}

type usage struct {
	CPU                 value.Elapsed `json:"cpu_ns" col:"CPU(s),width=10,right" help:"CPU time measured by the scheduler, up to the last tick or context switch: of all threads, including exited ones; with -T of the thread; text shows seconds" btf:"cpu_ns"`
	User                value.Elapsed `json:"user_ns" col:"USER(s),width=10,right" help:"part of cpu_ns in user mode, estimated from clock ticks as in /proc/PID/stat, except on kernels that measure it" btf:"user_ns"`
	System              value.Elapsed `json:"system_ns" col:"SYSTEM(s),width=10,right" help:"rest of cpu_ns, in kernel mode" btf:"system_ns"`
	VoluntarySwitches   uint64        `json:"voluntary_switches" col:"VSWITCH,width=8,right" help:"context switches because the task waited"`
	InvoluntarySwitches uint64        `json:"involuntary_switches" col:"ISWITCH,width=8,right" help:"context switches because the task was preempted"`
	MinorFaults         uint64        `json:"minor_faults" col:"MINFLT,width=8,right" help:"page faults without I/O"`
	MajorFaults         uint64        `json:"major_faults" col:"MAJFLT,width=8,right" help:"page faults that waited for I/O"`
}

type event struct {
	value.Task
	Start value.Time `json:"start" col:"START,width=8" help:"creation of the task by fork or clone, wall time (from CLOCK_BOOTTIME)" btf:"start_ns"`
	usage
	RSSPages     uint64
	SwapPages    uint64
	VirtualPages uint64
	PPID         uint32 `json:"ppid" col:"PPID,width=7" help:"process ID of the parent, in the initial PID namespace"`
	Threads      uint32 `json:"threads" col:"THR,width=4,right" help:"number of threads of the process"`
	Nice         int32  `json:"nice" col:"NI,width=3,right" help:"nice value"`
	RTPriority   uint32 `json:"rt_priority" col:"RTPRIO,width=6,right" help:"real-time priority for policies fifo and rr, otherwise 0"`
	PolicyNr     uint32 `btf:"policy"`
	StateNr      uint32 `btf:"state"`
	NSPID        uint32 `json:"ns_pid" col:"NSPID,width=7" help:"process ID (with -T thread ID) in the task's own PID namespace"`
	PIDNS        uint32 `json:"pidns" col:"PIDNS,width=10" help:"PID namespace of the task: inode number of /proc/PID/ns/pid; 0 for a task that has exited"`
	LocalTID     uint32
	Kernel       bool `json:"kernel" col:"KERNEL,width=6" help:"whether the task is a kernel thread"`
	WantArgs     bool
	_            [2]byte
}

type row struct {
	event
	Comm    value.Bytes   `json:"comm" col:"COMM,width=16,replace" help:"name of the thread; of a kernel thread as in /proc/TID/comm, where it may be longer than 15 bytes and a worker has the name of its work queue"`
	Age     value.Elapsed `json:"age_ns" col:"AGE(s),width=12,right" help:"time from start to time (CLOCK_BOOTTIME); text shows seconds"`
	State   string        `json:"state" col:"S,width=1" help:"state as in /proc/PID/stat: R running or runnable, S sleeping, D uninterruptible sleep, T stopped, t traced, X and Z exited, P parked, I idle kernel thread; of a process that of its thread-group leader"`
	Policy  string        `json:"policy" col:"POLICY,width=8" help:"scheduling policy: other, fifo, rr, batch, idle, deadline, ext"`
	RSS     value.Size    `json:"rss_bytes" col:"RSS_KB,width=10,right" help:"resident memory of the process: file, anonymous and shared pages; from kernel 6.2 on including per-CPU counts not yet added, if they are readable; before, excluding up to 64 pages per thread; text shows units of 1,024"`
	Swap    value.Size    `json:"swap_bytes" col:"SWAP_KB,width=10,right" help:"swapped-out memory of the process, with the same accuracy as rss_bytes"`
	Virtual value.Size    `json:"virtual_bytes" col:"VIRTUAL_KB,width=10,right" help:"size of the address space"`
	Args    value.List    `json:"args" col:"ARGS,width=30,extra,need=want_args" help:"arguments, from /proc/PID/cmdline, at most 1 MiB; absent for kernel threads and exited processes"`

	page    value.Size
	limits  *limit.Reporter
	hasProc bool // /proc belongs to the PID namespace of LocalTID
}

const states = "RSDTtXZPI"

var policies = [...]string{0: "other", "fifo", "rr", "batch", 5: "idle", "deadline", "ext"}

// Decode computes the derived columns.
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
	if r.WantArgs && !r.Kernel && r.isInProc() {
		r.Args = r.arguments()
	}
	r.Comm = value.Bytes(r.Task.Comm.String())
	if r.Kernel && r.isInProc() {
		r.Comm = r.kernelName()
	}
	return nil
}

// arguments reads the arguments of the process. If the thread-group leader has exited, it reads them
// from another thread.
func (r *row) arguments() value.List {
	args := r.read(fmt.Sprintf("/proc/%d/cmdline", r.LocalTID))
	if len(args) > 0 || r.Threads < 2 {
		return args
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cmdline", r.LocalTID)) // its only error is a bad pattern
	for _, thread := range threads {
		if args := r.read(thread); len(args) > 0 {
			return args
		}
	}
	return nil
}

// read reads a command line. It returns nil if the task has exited.
func (r *row) read(cmdline string) []byte {
	args, err := limit.ReadFile(cmdline, limit.Arguments)
	if errors.Is(err, limit.ErrExceeded) {
		r.limits.Report(int(r.PID), err, "args ends there")
	}
	return args
}

// isInProc reports whether /proc has files of the task: /proc only has tasks of its PID namespace.
func (r *row) isInProc() bool { return r.hasProc && r.LocalTID != 0 }

// kernelName returns the name of a kernel thread as in /proc: the full name (kernel 5.17), with the
// work queue appended for a worker (kernel 4.18). If the thread has exited, another task may have its
// ID, so a name that does not start with the name in the event is ignored.
func (r *row) kernelName() value.Bytes {
	name, _ := limit.ReadFile(fmt.Sprintf("/proc/%d/comm", r.LocalTID), 64) // nothing if it has exited
	if name = bytes.TrimSuffix(name, []byte("\n")); bytes.HasPrefix(name, r.Comm) {
		return name
	}
	return r.Comm
}

// share scales user and system time, which are estimated from ticks, so that their sum is the exact
// CPU time.
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

// Tool is the definition of tasks.
var Tool = tool.Define(tool.Spec{
	Name:     "tasks",
	Category: "process",
	Summary:  "List processes and threads with CPU time and memory (like ps)",
	Description: `Lists processes, or with -T all threads, including kernel threads, in the order of their IDs. It shows data of ps(1) from the kernel's own structures, with the columns, filters and output formats common to all tools.

Tasks are not stopped while they are read. The values of a row were valid within microseconds of its time; values of different rows need not have been valid at the same time. The threads of a process are read before its row, to sum up their resource usage.

Only tasks in the PID namespace of corescope are listed.`,
	Peers: []string{
		"BCC and libbpf-tools have no tool of this name. bps of BCC is bpflist.",
	},
	Examples: []string{
		"tasks                                # all processes",
		"tasks --container web --columns +args # processes of a container, with arguments",
		`tasks -T --filter 'state == "D"'     # threads in uninterruptible sleep`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if !o.Threads {
		if err := env.CheckLeaders(); err != nil {
			return nil, fmt.Errorf("%w without --threads: add -T", err)
		}
	}
	perCPU, err := env.PerCPU()
	if err != nil && !errors.Is(err, tool.ErrUnsupported) {
		return nil, err
	}
	list := &source.List[row]{
		Plan:      tool.Plan{Variables: perCPU},
		Columns:   []string{"pid", "ppid", "user", "state", "threads", "cpu_ns", "rss_bytes", "age_ns", "comm"},
		Row:       row{page: value.Size(os.Getpagesize()), limits: env.Limits(), hasProc: env.HasProc()},
		Iterators: []tool.Iterator{{Program: "threads"}, {Program: "tasks"}},
	}
	if o.Threads {
		list.Columns = []string{"pid", "tid", "user", "state", "cpu_ns", "age_ns", "comm"}
		list.Iterators = list.Iterators[1:]
	}
	return list, nil
}
