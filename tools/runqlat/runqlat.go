// Package runqlat shows run queue latency as a histogram.
package runqlat

import (
	"errors"

	"github.com/corescope/corescope/internal/culprit"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh runqlat.bpf.c

type options struct {
	source.Interval
	source.Milliseconds
	PIDs   bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"one histogram per process"`
	TIDs   bool `flag:"tids,L" bpf:"by_tid" key:"tid,comm" help:"one histogram per thread"`
	PIDNSs bool `flag:"pidnss" bpf:"by_pidns" key:"pidns" help:"one histogram per PID namespace"`
	source.ByOwner
	CPUs    bool   `flag:"cpus" bpf:"by_cpu" key:"cpu" help:"one histogram per CPU"`
	By      string `flag:"by" of:"culprit" arg:"culprit" help:"divide the waits among what used the CPU meanwhile, as a table"`
	Reasons bool   `flag:"reasons" bpf:"by_reason" key:"reason" help:"separate histograms for waits after a wake-up and after a preemption"`
	source.Ranking
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
	PID       uint32     `json:"pid" help:"process that waited, in the initial PID namespace"`
	TID       uint32     `json:"tid" help:"thread that waited, in the initial PID namespace"`
	Comm      value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name at the end of the wait, of the thread with --tids, otherwise of the process (its thread-group leader)"`
	PIDNS     uint32     `json:"pidns" help:"inode number of the PID namespace in which the task was created; 0 if the task was reaped before its last wait ended"`
	Cgroup    string     `json:"cgroup" help:"path of the task's cgroup at the end of the wait"`
	Container string     `json:"container" help:"name of the container of that cgroup, or its short ID; empty outside containers"`
	CPU       uint32     `json:"cpu" help:"CPU that the task ran on after the wait"`
	Reason    string     `json:"reason" help:"start of the wait: wakeup, or preempted if a runnable task left a CPU"`
}

// Tool is the definition of runqlat.
var Tool = tool.Define(tool.Spec{
	Name:     "runqlat",
	Category: "scheduler",
	Summary:  "Run queue latency (scheduler latency) as a histogram",
	Description: `Measures run queue latency: the time from becoming runnable to running on a CPU.

A wait begins when a task is put on a run queue after a wake-up or its creation (sched_wakeup, sched_wakeup_new), or when it leaves a CPU while still runnable (sched_switch), because it was preempted or yielded. It ends when a CPU switches to the task. The clock is CLOCK_MONOTONIC, read at these three tracepoints. This is one wait even if the task is migrated to another CPU, throttled by the CPU limit of its cgroup, or woken again. The time until a remote wake-up reaches the other CPU is not included.

A task that is preempted while it is about to sleep waits from then on, because it is still on the run queue. A sleeping task waits only once it is woken, even if the scheduler keeps it on the run queue for a while (delayed dequeue, kernel 6.12 and later).

Idle tasks never wait. A wait is counted when it ends; waits in progress at the end of the run are not in the last report. Filters and keys apply to the waiting task, not to the task that wakes it. A process that changes its name, by exec or prctl, has one histogram per name.

A wait whose start or end was not observed, because the kernel skipped the program, is lost and counted as unobserved. Waits that began before the tool was ready are not counted.

With --by culprit, the waits are divided among what used the CPU meanwhile, and a table has a row for each pair of a process that waited and a culprit: with -L of threads, and with --cgroups alone of cgroups. ` + culprit.Manual + `

The table has other columns than the histograms. What waited: comm, pid, tid, cpu, cgroup. What used the CPU: kind, and of a task culprit, culprit_pid, culprit_tid and culprit_cgroup, its name being that when it got the CPU. total_ns is the part of the waits in which it used the CPU, share_percent that part in percent of all rows with the same waiting process, thread or cgroup, and waits the number of waits that it has a part in. corescope schema runqlat --by culprit prints the definitions, and --filter and --sort use these names.

The kernel keeps 8 bytes per possible thread ID (kernel.pid_max), at most 32 MB. If the limit is raised during a run, waits of threads with higher IDs are lost and counted as map_full. With --by culprit it keeps 44 MB more, for 262,144 entries of the table: one per row and CPU.`,
	Peers: []string{
		"-p is --pid and -c is --cgroup; several processes and cgroups v1 are supported.",
		"--pid, --cgroup and the other filters apply to the waiting task. -c of libbpf-tools tests the waking task, or the task that used the CPU before: it misses waits in the cgroup that are ended or started by others.",
		"A task that is preempted while it is about to sleep waits, and a later wake-up does not restart the wait. libbpf-tools and BCC omit such waits, or count them from the wake-up on.",
		"COMM of -P is the name of the process; in the peers it is the name of an arbitrary thread. A process that changes its name has two histograms; in the peers it has one. --pidnss shows no comm, because it would be that of an arbitrary task.",
		"--by culprit has no counterpart.",
		"-P, -L, --pidnss, --cgroups, --containers, --cpus and --reasons can be combined.",
		"There is no limit of 10,240 tasks.",
	},
	Examples: []string{
		"runqlat 1 10                                    # a report each second, ten times",
		"runqlat -P --duration 5s                        # by process, over five seconds",
		"runqlat --by culprit --duration 10s             # whom each process waited for, and how long",
		"runqlat --by culprit --cgroups 5                # which cgroups took CPU time from which ones",
		"runqlat --reasons -c /system.slice/db.service   # one service, by reason of the wait",
		"runqlat --containers --filter 'p99 > 10000' 10  # containers with a p99 above 10 ms",
	},
	Object: load,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c", "sort": "", "rows": ""},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan := tool.Plan{
		Variables:  map[string]any{"by_cgroup": o.ByOwner.Wanted()},
		MapEntries: map[string]uint32{"sched_waits": system.PIDMax("/")},
		Begin:      []tool.Iterator{{Program: "sched_begin"}},
		Draws:      o.By == "",
	}
	culprit.Prepare(&plan)
	if o.By != "" {
		return o.culprits(plan, env)
	}
	if o.Sort != "" || o.Rows != 0 {
		return nil, errors.New("--sort and --rows need --by culprit: they apply to tables, and histograms are shown without it")
	}
	return &source.Hists[histKey, label]{
		Plan:     plan,
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label:    func(k histKey) label { return o.label(k, env) },
		Keys:     source.Keys(o),
	}, nil
}

// label converts a key to a label. Histograms with equal labels are added.
func (o *options) label(k histKey, env *tool.Env) label {
	l := label{PID: k.PID, TID: k.TID, Comm: k.Comm, PIDNS: k.PIDNS, CPU: k.CPU}
	l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
	if o.Reasons {
		l.Reason = "wakeup"
		if k.Detail != 0 {
			l.Reason = "preempted"
		}
	}
	return l
}
