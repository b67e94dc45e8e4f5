// Package runqslower traces long waits for a CPU.
package runqslower

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/corescope/corescope/internal/culprit"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh runqslower.bpf.c

type options struct {
	Min      flags.Microseconds `pos:"min_us" bpf:"targ_min_ns" help:"only waits of at least this time: microseconds, or with a unit as 10ms; 10000 by default"`
	Previous bool               `flag:"previous,P" help:"show the task that used the CPU before"`
}

type event struct {
	value.Task
	LatencyNs value.Micros `json:"latency_ns" col:"LAT(us),width=14,right" help:"run queue latency, CLOCK_MONOTONIC: from the wake-up (sched_wakeup, sched_wakeup_new) or preemption (sched_switch) of the thread to the switch of a CPU to it (sched_switch); text shows microseconds"`
	CPU       uint32       `json:"cpu" col:"CPU,width=4" help:"CPU that the thread runs on after the wait"`
	PrevPID   uint32       `json:"prev_pid" col:"PREV PID,width=8" help:"process of the thread in prev_tid, in the initial PID namespace; 0 for the idle task"`
	PrevTID   uint32       `json:"prev_tid" col:"PREV TID,width=8" help:"thread that used this CPU until the end of the wait, in the initial PID namespace; 0 for the idle task"`
	Preempted uint32
	PrevComm  value.Comm `json:"prev_comm" col:"PREV COMM,width=16" help:"name of that thread"`
}

type row struct {
	event
	Reason string `json:"reason" col:"REASON,width=9" help:"start of the wait: wakeup, or preempted if the thread left a CPU while runnable"`

	Culprit       value.Name    `json:"culprit" col:"CULPRIT,width=16,extra,need=want_culprit" help:"what used the CPU for the largest part of the wait: name of the thread when it got the CPU, otherwise culprit_kind"`
	CulpritKind   string        `json:"culprit_kind" col:"CULPRIT KIND,width=12,extra,need=want_culprit" help:"task (of another process), thread (of the process that waited), hardirq, softirq, steal (the hypervisor ran something else), throttled (the limit of a cgroup, cpu.max, stopped the thread), idle (nothing, until the CPU switched to the thread), or unknown"`
	CulpritPID    value.Nonzero `json:"culprit_pid" col:"CULPRIT PID,width=11,extra,need=want_culprit" help:"process of culprit_tid, in the initial PID namespace; absent if the culprit is not a task"`
	CulpritTID    value.Nonzero `json:"culprit_tid" col:"CULPRIT TID,width=11,extra,need=want_culprit" help:"thread that is the culprit, in the initial PID namespace; absent if the culprit is not a task"`
	CulpritNs     value.Micros  `json:"culprit_ns" col:"CULPRIT(us),width=14,right,extra,need=want_culprit" help:"part of latency_ns that belongs to the culprit; 0 if it is not known which part is the largest; text shows microseconds"`
	CulpritShare  value.Percent `json:"culprit_percent" col:"CULPRIT%,width=8,right,extra,need=want_culprit" help:"culprit_ns in percent of latency_ns"`
	CulpritCgroup value.Name    `json:"culprit_cgroup" col:"CULPRIT CGROUP,width=30,extra,need=want_culprit" help:"path of the culprit's cgroup when it got the CPU; absent if the culprit is not a task"`

	path func(uint64) string // of a cgroup
}

// largest mirrors struct culprit.
type largest struct {
	Ns, CgroupID uint64
	PID, TID     uint32
	Kind         culprit.Kind
	_            uint32 `btf:"serial"`
	Comm         value.Comm
}

// Decode computes the derived columns. With want_culprit, a struct culprit follows the event.
func (r *row) Decode(tail []byte) error {
	var c largest
	if size := binary.Size(c); len(tail) >= size {
		if _, err := binary.Decode(tail[:size], binary.NativeEndian, &c); err != nil {
			return fmt.Errorf("read culprit: %w", err)
		}
	}
	r.CulpritKind, r.CulpritPID, r.CulpritTID, r.CulpritNs = c.Kind.String(), value.Nonzero(c.PID), value.Nonzero(c.TID), value.Micros(c.Ns)
	r.Culprit, r.CulpritCgroup, r.CulpritShare = value.Name(r.CulpritKind), "", value.Percent(math.NaN())
	if r.LatencyNs > 0 {
		r.CulpritShare = value.Percent(100 * float64(c.Ns) / float64(r.LatencyNs))
	}
	if c.Kind.IsTask() {
		r.Culprit, r.CulpritCgroup = value.NameOf(c.Comm[:]), value.Name(r.path(c.CgroupID))
	}
	r.Reason = "wakeup"
	if r.Preempted != 0 {
		r.Reason = "preempted"
	}
	return nil
}

// Tool is the definition of runqslower.
var Tool = tool.Define(tool.Spec{
	Name:     "runqslower",
	Category: "scheduler",
	Summary:  "Trace threads that wait long for a CPU (run queue latency, scheduler latency above a limit)",
	Description: `Shows each wait for a CPU of at least min_us microseconds, 10,000 by default, when it ends.

A wait begins and ends as in runqlat(8), at the tracepoints sched_wakeup, sched_wakeup_new and sched_switch. It includes waits after a preemption, and it is a single wait even if the thread is migrated, throttled by the CPU limit of its cgroup, or woken again.

Columns describe the thread that waited at the end of the wait; time is that end. The thread in prev_tid used the same CPU until then. It need not be the cause of the whole wait: other threads may have used the CPU before, and the thread may have waited for another CPU first.

The columns culprit, culprit_kind, culprit_pid, culprit_tid, culprit_ns, culprit_percent and culprit_cgroup, which --columns can add (+culprit,+culprit_ns), show what used the CPU for the largest part of the wait. ` + culprit.Manual + ` If more than 64 tasks used the CPU, it can be unknown which part is the largest.

Waits that have not ended when the tool stops are not shown. Filters apply to the thread that waits.

A wait whose start or end was not observed, because the kernel skipped the program, is lost and counted as unobserved, whatever its length. Waits that began before the tool was ready are not counted.

The kernel keeps 8 bytes per possible thread ID (kernel.pid_max), at most 32 MB. If the limit is raised during a run, waits of threads with higher IDs are lost and counted as map_full.`,
	Peers: []string{
		"-p is --pid, -t is --tid and -c is --comm. Several processes and threads are supported.",
		"A wait of exactly min_us is shown; in libbpf-tools and BCC the wait has to be longer.",
		"LAT(us) has three decimals.",
		"--pid, --tid and --comm apply to the thread that waits, at its start. A short wait leaves no entry behind; in libbpf-tools it does, which makes a later wait too long or fills the map.",
		"A thread that is preempted while it is about to sleep waits, and a later wake-up does not restart the wait. libbpf-tools and BCC omit such waits, or count them from the wake-up on.",
		"There is no limit of 10,240 threads.",
	},
	Examples: []string{
		"runqslower                              # waits of at least 10 ms",
		"runqslower -P 1000 --duration 10s       # 1 ms, with the thread that used the CPU before",
		"runqslower --columns +culprit,+culprit_percent,+culprit_cgroup  # who was to blame",
		"runqslower --container web --columns +cpu,+reason 5ms  # one container, with CPU and reason",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "comm": "c"},
}, options{Min: flags.Microseconds(10 * time.Millisecond)}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	columns := []string{"time", "comm", "tid", "latency_ns"}
	if o.Previous {
		columns = append(columns, "prev_comm", "prev_tid")
	}
	plan := tool.Plan{
		Variables:  map[string]any{},
		MapEntries: map[string]uint32{"sched_waits": system.PIDMax("/")},
		Begin:      []tool.Iterator{{Program: "sched_begin"}},
	}
	culprit.Prepare(&plan, "largest_share")
	return &source.Events[row]{Plan: plan, Row: row{path: env.CgroupPath}, Columns: columns, BufferBytes: 4 << 20}, nil
}
