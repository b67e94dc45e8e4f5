// Package cpudist shows the time that tasks stay on a CPU, or off it, as a histogram.
package cpudist

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cpudist.bpf.c

type options struct {
	source.Interval
	source.Milliseconds
	OffCPU bool `flag:"offcpu,O" bpf:"targ_offcpu" help:"measure the time off the CPU instead"`
	Idle   bool `flag:"include-idle,I" bpf:"targ_idle" help:"include idle tasks: PID 0, one per CPU"`
	PIDs   bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"one histogram per process"`
	TIDs   bool `flag:"tids,L" bpf:"by_tid" key:"tid,comm" help:"one histogram per thread"`
	source.ByOwner
	CPUs      bool `flag:"cpus" bpf:"by_cpu" key:"cpu" help:"one histogram per CPU"`
	Extension bool `flag:"extension,e" help:"no effect: a line with the count, the mean and the maximum is always shown"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	CgroupID             uint64
	PID, TID, PIDNS, CPU uint32
	Comm                 value.Comm
	Detail               uint32
	_                    uint32
}

type label struct {
	PID       uint32     `json:"pid" help:"process, in the initial PID namespace; 0 for idle tasks"`
	TID       uint32     `json:"tid" help:"thread, in the initial PID namespace; 0 for idle tasks"`
	Comm      value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name at the end of the time, of the thread with --tids, otherwise of the process (its thread-group leader)"`
	Cgroup    string     `json:"cgroup" help:"path of the task's cgroup at the end of the time"`
	Container string     `json:"container" help:"name of the container of that cgroup, or its short ID; empty outside containers"`
	CPU       uint32     `json:"cpu" help:"CPU that the task ran on; with --offcpu the CPU that it ran on after the time off the CPU"`
}

// Tool is the definition of cpudist.
var Tool = tool.Define(tool.Spec{
	Name:     "cpudist",
	Category: "scheduler",
	Summary:  "Time that threads run on a CPU per context switch, or stay off it, as a histogram (on-CPU and off-CPU time)",
	Description: `Measures how long a thread runs on a CPU between two context switches: from the switch of the CPU to the thread (sched_switch) to the switch away from it. Short times show much switching; long times show threads that use their whole time slice, or that no other thread competes with.

With --offcpu it measures how long a thread is off the CPU: from the switch away from the thread to the next switch of a CPU to it. This is the time blocked and the run queue latency together, and for a preempted thread the run queue latency only. runqlat(8) shows the run queue latency, offcputime(8) what threads wait for.

The clock is CLOCK_MONOTONIC, read at sched_switch. The time on a CPU includes interrupts and, in a virtual machine, time that the host takes.

A time is counted when it ends. Threads that run when the tool starts are counted from their next switch on, because the start of the first time is unknown; with --offcpu the same applies to threads that are off the CPU. Times that have not ended when the tool stops are not counted. So a thread that never leaves its CPU has no value.

A time is lost and counted as unobserved if its start or end was not observed, because the kernel skipped the program. With --offcpu the kernel keeps 8 bytes per possible thread ID (kernel.pid_max), at most 32 MB. If the limit is raised during a run, times of threads with higher IDs are lost and counted as map_full.

Filters and keys apply to the thread that is measured. A process that changes its name, by exec or prctl, has one histogram per name.`,
	Peers: []string{
		"-p is --pid and -c is --cgroup; several processes and cgroups v1 are supported.",
		"-e has no effect: the line below a histogram always has the count and the mean. The total is sum in JSON.",
		"COMM of -P is the name of the process; in the peers it is the name of an arbitrary thread. A process that changes its name has two histograms; in the peers it has one.",
		"-P and -L can be combined with each other and with --cgroups, --containers and --cpus.",
		"-I is that of BCC; libbpf-tools has no idle tasks. With -P all idle tasks are one process, 0.",
		"--cgroup applies to the thread that is measured. -c of libbpf-tools tests the thread that is switched away from also for --offcpu.",
		"There is no limit of 10,240 threads.",
	},
	Examples: []string{
		"cpudist 1 10                            # time on a CPU, a report each second, ten times",
		"cpudist -P --duration 5s                # by process, over five seconds",
		"cpudist -O -m -p 1234 10                # time off the CPU of one process, in milliseconds",
		"cpudist --containers --filter 'p50 < 100' 10  # containers with mostly short times",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	entries := uint32(1)
	if o.OffCPU {
		entries = system.PIDMax("/")
	}
	return &source.Hists[histKey, label]{
		Plan: tool.Plan{
			Variables:  map[string]any{"by_cgroup": o.ByOwner.Wanted()},
			MapEntries: map[string]uint32{"tasks_left": entries},
		},
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label: func(k histKey) label {
			l := label{PID: k.PID, TID: k.TID, Comm: k.Comm, CPU: k.CPU}
			l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
			return l
		},
		Keys: source.Keys(o),
	}, nil
}
