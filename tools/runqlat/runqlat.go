// Package runqlat shows how long tasks wait for a CPU.
package runqlat

import (
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh runqlat.bpf.c

type options struct {
	tool.Interval
	tool.Milliseconds
	PIDs   bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"a histogram for each process"`
	TIDs   bool `flag:"tids,L" bpf:"by_tid" key:"tid,comm" help:"a histogram for each thread"`
	PIDNSs bool `flag:"pidnss" bpf:"by_pidns" key:"pidns" help:"a histogram for each PID namespace"`
	tool.ByOwner
	CPUs    bool `flag:"cpus" bpf:"by_cpu" key:"cpu" help:"a histogram for each CPU"`
	Reasons bool `flag:"reasons" bpf:"by_reason" key:"reason" help:"apart: waits after a wake-up and waits after a preemption"`
}

// histKey is struct hist_key.
type histKey struct {
	CgroupID             uint64
	PID, TID, PIDNS, CPU uint32
	Comm                 value.Comm
	Preempted            uint32
	_                    uint32
}

type label struct {
	PID       uint32     `json:"pid" help:"process that waited, in the initial PID namespace"`
	TID       uint32     `json:"tid" help:"thread that waited, in the initial PID namespace"`
	Comm      value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name of the thread by --tids, else of the process (its first thread), when the wait ended"`
	PIDNS     uint32     `json:"pidns" help:"inode number of the PID namespace that the task was made in; 0 when it was reaped before its last wait ended"`
	Cgroup    string     `json:"cgroup" help:"path of the cgroup that the task was in when the wait ended"`
	Container string     `json:"container" help:"name of the container by that cgroup, or its short id; empty for what is in none"`
	CPU       uint32     `json:"cpu" help:"CPU that the task was given"`
	Reason    string     `json:"reason" help:"what began the wait: wakeup, or preempted for a task that left a CPU while it could run on"`
}

// Tool is runqlat.
var Tool = tool.Define(tool.Spec{
	Name:     "runqlat",
	Category: "scheduler",
	Summary:  "Show how long tasks wait for a CPU, as a histogram",
	Description: `Measures the time from when a task can run until it runs.

A wait begins when a task is woken or new and was put on a run queue (sched_wakeup, sched_wakeup_new), or when it leaves a CPU while it could run on (sched_switch): preempted, or because it yielded. It ends when a CPU switches to the task. The clock is CLOCK_MONOTONIC, read in those three tracepoints. What lies between is one wait, also when the task is moved to another CPU, is throttled by its cgroup's CPU limit, or is woken once more. The time that the wake-up itself takes to reach another CPU is not in it.

A task that is preempted on its way to sleep waits from there on: it is still on the run queue. A task that went to sleep waits for no CPU until it is woken, even where the scheduler leaves it on the run queue for a while (delayed dequeue, from kernel 6.12 on).

The idle tasks never wait. A wait is counted when it ends, so one that is not over at the end is not in the last report. Filters and keys are of the task that waits, not of the one that wakes it. A process that changes its name, by exec or prctl, has a histogram for each.

The kernel keeps 8 bytes for each thread id that there may be (kernel.pid_max): 32 MB at the most, on the largest setting. If that is raised during a run, waits of threads with higher ids are lost, and counted as map_full.`,
	Peers: []string{
		"-p is --pid and -c is --cgroup, which take several processes, and v1 cgroups too.",
		"--pid, --cgroup and the other filters are of the waiting task. libbpf-tools' -c tests the task that wakes it or that had the CPU before: it leaves out waits in the cgroup that are ended or begun by others.",
		"A task that is preempted on its way to sleep waits, and a later wake-up does not begin its wait anew. libbpf-tools and BCC do not count such a wait, or count it from the wake-up on.",
		"The comm of -P is the name of the process, where theirs is that of any one of its threads; a process that changes its name has two histograms where theirs has one. --pidnss shows no comm, as it would be that of one task among many.",
		"-P, -L, --pidnss, --cgroups, --containers, --cpus and --reasons go together.",
		"There is no limit of 10,240 tasks.",
	},
	Examples: []string{
		"runqlat 1 10                                    # a report each second, ten times",
		"runqlat -P --duration 5s                        # by process, over five seconds",
		"runqlat --reasons -c /system.slice/db.service   # one service, wake-ups and preemptions apart",
		"runqlat --containers --filter 'p99 > 10000' 10  # containers that wait over 10 ms now and then",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	return &tool.Hists[histKey, label]{
		Plan: tool.Plan{
			Variables:  map[string]any{"by_cgroup": o.ByOwner.Wanted()},
			MapEntries: map[string]uint32{"sched_waits": system.PIDMax("/")},
		},
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label:    func(k histKey) label { return o.label(k, env) },
		Keys:     tool.Keys(o),
	}, nil
}

// label names what the key tells apart; histograms of equal labels are added up.
func (o *options) label(k histKey, env *tool.Env) label {
	l := label{PID: k.PID, TID: k.TID, Comm: k.Comm, PIDNS: k.PIDNS, CPU: k.CPU}
	l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
	if o.Reasons {
		l.Reason = "wakeup"
		if k.Preempted != 0 {
			l.Reason = "preempted"
		}
	}
	return l
}
