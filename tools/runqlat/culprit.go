package runqlat

import (
	"errors"
	"iter"
	"maps"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/culprit"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// key mirrors struct table_key.
type key struct {
	CgroupID, CulpritCgroupID        uint64
	PID, TID, CulpritPID, CulpritTID uint32
	CPU                              uint32
	Kind                             culprit.Kind
	Comm, CulpritComm                value.Comm
}

// counts mirrors struct table_value.
type counts struct {
	TotalNs, Waits uint64
	Last, _        uint32
}

// waiter has the fields of a row that identify what waited.
type waiter struct {
	Comm     value.Comm `json:"comm" col:"COMM,width=16" help:"name at the end of the wait, of the thread with --tids, otherwise of the process (its thread-group leader)"`
	PID      uint32     `json:"pid" col:"PID,width=7" help:"process that waited, in the initial PID namespace"`
	TID      uint32     `json:"tid" col:"TID,width=7" help:"thread that waited, in the initial PID namespace"`
	CPU      uint32     `json:"cpu" col:"CPU,width=4" help:"CPU that the task ran on after the wait"`
	CgroupID uint64     `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"ID of the task's cgroup at the end of the wait"`
}

type row struct {
	waiter
	Kind          string        `json:"kind" col:"KIND,width=9" help:"what used the CPU: task (of another process), thread (of the process that waited), hardirq, softirq, steal (the hypervisor ran something else), throttled (the limit of a cgroup, cpu.max, stopped the task), idle (nothing, until the CPU switched to the task), or unknown"`
	Culprit       value.Name    `json:"culprit" col:"CULPRIT,width=16" help:"name of the culprit when it got the CPU, of the thread with --tids, otherwise of the process (its thread-group leader); absent if it is not a task"`
	CulpritPID    value.Nonzero `json:"culprit_pid" col:"CULPRIT PID,width=11" help:"process of the culprit, in the initial PID namespace; absent if it is not a task"`
	CulpritTID    value.Nonzero `json:"culprit_tid" col:"CULPRIT TID,width=11" help:"thread that used the CPU, in the initial PID namespace; absent if the culprit is not a task"`
	CulpritCgroup value.Name    `json:"culprit_cgroup" col:"CULPRIT CGROUP,width=30" help:"path of the culprit's cgroup when it got the CPU; absent if it is not a task"`
	TotalNs       value.Scaled  `json:"total_ns" col:"TOTAL_us,width=14,right" help:"part of the waits that ended in the interval: time in which the culprit used the CPU and the task waited for it, CLOCK_MONOTONIC; text shows microseconds, or milliseconds with -m"`
	Share         value.Percent `json:"share_percent" col:"SHARE,width=7,right" help:"total_ns in percent of the waits: of all rows with the same waiting task, process or cgroup"`
	Waits         uint64        `json:"waits" col:"WAITS,width=8,right" help:"waits that the culprit has a part in"`
}

// tableEntries is the capacity of the table of --by culprit: 44 MB.
const tableEntries = 1 << 18

// load returns the object. All entries of its table are allocated in advance: the end of a wait adds an
// entry per culprit, under the lock of the run queue. Interrupts are disabled then, and the kernel
// allocates further entries in an interrupt, so that it soon has none left (ENOMEM; measured: after 4 to
// 52 culprits). The number of entries is that of runs that do not use the table.
func load(which ...tool.Variants) (*ebpf.CollectionSpec, error) {
	spec, err := loadBpf(which...)
	if err != nil {
		return nil, err
	}
	table := spec.Maps[bpfMapTable]
	table.Flags &^= unix.BPF_F_NO_PREALLOC
	table.MaxEntries = 1
	return spec, nil
}

// culprits returns the source of --by culprit.
func (o *options) culprits(plan tool.Plan, env *tool.Env) (tool.Source, error) {
	if o.Reasons || o.PIDNSs || o.Containers || o.Timestamp {
		return nil, errors.New("--by culprit cannot be combined with --reasons, --pidnss, --containers and --timestamp: its table is grouped by process, thread, cgroup or CPU, and has the time and the column container")
	}
	if o.Sort == "" {
		o.Sort = "total_ns"
	}
	byPID := o.PIDs || !o.TIDs && !o.Cgroups
	maps.Copy(plan.Variables, map[string]any{
		"want_culprit": true, "by_cgroup": true, "by_pid": byPID || o.TIDs, "culprit_processes": !o.TIDs,
	})
	plan.MapEntries["hists"], plan.MapEntries["hists_plain"], plan.MapEntries["hist_exemplars"] = 1, 1, 1
	plan.MapEntries["table"] = tableEntries
	t := &source.Table[key, counts, row]{
		Plan: plan, Rounds: o.Rounds, Ranking: o.Ranking, TextRows: 50,
		Label: func(k *key, _ *counts) row {
			r := row{
				waiter: waiter{k.Comm, k.PID, k.TID, k.CPU, k.CgroupID},
				Kind:   k.Kind.String(), Culprit: value.NameOf(k.CulpritComm[:]), CulpritPID: value.Nonzero(k.CulpritPID), CulpritTID: value.Nonzero(k.CulpritTID),
			}
			if k.Kind.IsTask() {
				r.CulpritCgroup = value.Name(env.CgroupPath(k.CulpritCgroupID))
			}
			return r
		},
	}
	waited := map[waiter]uint64{}
	t.Survey = source.SurveyWith(func(rows iter.Seq2[*row, *counts]) {
		clear(waited)
		for r, c := range rows {
			waited[r.waiter] += c.TotalNs
		}
	})
	t.Fill = func(r *row, c *counts, _ time.Duration) {
		r.TotalNs, r.Waits, r.Share = value.Scaled{Ns: c.TotalNs, Unit: uint64(o.Unit())}, c.Waits, value.Percent(math.NaN())
		if all := waited[r.waiter]; all > 0 {
			r.Share = value.Percent(100 * float64(c.TotalNs) / float64(all))
		}
	}
	t.Columns, t.Off = o.columns(byPID)
	if o.Milliseconds.Milliseconds {
		t.Headers = map[string]string{"total_ns": "TOTAL_ms"}
	}
	return t, nil
}

// columns lists the columns of text, and those that the table does not have.
func (o *options) columns(byPID bool) (shown, off []string) {
	for _, c := range []struct {
		wanted bool
		keys   []string
	}{
		{byPID || o.TIDs, []string{"comm", "pid"}},
		{o.TIDs, []string{"tid"}},
		{o.CPUs, []string{"cpu"}},
		{o.Cgroups, []string{"cgroup"}},
		{true, []string{"kind"}},
		{byPID || o.TIDs, []string{"culprit", "culprit_pid"}},
		{o.TIDs, []string{"culprit_tid"}},
		{o.Cgroups, []string{"culprit_cgroup"}},
		{true, []string{"total_ns", "share_percent", "waits"}},
	} {
		if c.wanted {
			shown = append(shown, c.keys...)
		} else if c.keys[0] != "cgroup" && c.keys[0] != "culprit_cgroup" {
			off = append(off, c.keys...)
		}
	}
	return shown, off
}
