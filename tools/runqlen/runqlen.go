// Package runqlen samples the lengths of run queues.
package runqlen

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh runqlen.bpf.c

type options struct {
	source.Interval
	source.Sampled
	CPUs      bool `flag:"cpus,C" bpf:"by_cpu" key:"cpu" help:"one result per CPU"`
	Occupancy bool `flag:"runqocc,O" bpf:"targ_occupancy" help:"report occupancy instead: the share of samples in which a task waits"`
	Host      bool `flag:"host,H" help:"no effect: the run queue of a CPU always includes the tasks of all cgroups"`
}

// Mirrors of struct table_key, which is also struct hist_key, and struct table_value.
type (
	key    struct{ CPU uint32 }
	counts struct{ Samples, Queued uint64 }
)

type label struct {
	CPU uint32 `json:"cpu" help:"CPU that the tasks wait for"`
}

type row struct {
	CPU       uint32        `json:"cpu" col:"CPU,width=4" help:"CPU that the tasks wait for; absent without --cpus"`
	Occupancy value.Percent `json:"occupancy_percent" col:"RUNQOCC,width=8,right" help:"samples with a waiting task in percent of all samples"`
	Samples   uint64        `json:"samples" col:"SAMPLES,width=9,right" help:"number of samples, including those that the kernel did not take while the CPU was idle"`
	Queued    uint64        `json:"queued" col:"QUEUED,width=9,right" help:"samples in which at least one task waited"`
}

// Tool is the definition of runqlen.
var Tool = tool.Define(tool.Spec{
	Name:     "runqlen",
	Category: "scheduler",
	Summary:  "Run queue length of CPUs as a histogram: how many tasks wait for a CPU",
	Description: `Samples the length of the run queue of each CPU at regular intervals: the number of tasks that are runnable and wait for this CPU. The task that runs is not included. So 0 means that no task waits, whether the CPU is idle or not.

The length is rq->nr_running of the kernel, which includes the tasks of all scheduling classes and cgroups, without the running task. Sleeping tasks that the scheduler keeps on the run queue for a while (delayed dequeue, kernel 6.12 and later) are not included, except in 6.12.0 to 6.12.6, which do not count them separately. Tasks that are throttled by the CPU limit of their cgroup are not included.

With --runqocc it reports the occupancy: the share of samples in which at least one task waits.

Samples are triggered by the CPU clock of perf events (PERF_COUNT_SW_CPU_CLOCK), 99 times a second on each CPU, so that they do not coincide with activities that occur 100 times a second. Idle CPUs are sampled too. CPUs that come online later are sampled from then on.

The kernel can take fewer samples than are due: on an idle CPU whose timer tick is stopped, when the timer expires too late, as at high frequencies, or for process 1 of a guest that hides it. A sample that was due while the CPU was idle, by the idle time in /proc/stat, is counted with length 0. Others are lost, and counted as unobserved.

A sample says nothing about how long tasks wait; see runqlat(8). A CPU with waiting tasks can be next to an idle one; see cpuunclaimed(8). The kernel needs CONFIG_FAIR_GROUP_SCHED.`,
	Peers: []string{
		"The length includes the tasks of all cgroups and scheduling classes. In libbpf-tools without -H, BCC and bpftrace it is that of the cgroup whose task runs, where a child cgroup counts as one task, and real-time tasks are not included. -H is accepted and has no effect.",
		"Sleeping tasks with a delayed dequeue are not counted; with -H of libbpf-tools they are.",
		"bpftrace's runqlen.bt shows 0 in kernels with another layout of struct cfs_rq (5.7 and later) in old versions; this tool reads the layout of the kernel.",
		"-C has no limit of 64 or 128 CPUs.",
		"Text has one line per length below 32, and a range of lengths per line from there on.",
	},
	Examples: []string{
		"runqlen 10 1         # ten seconds, all CPUs in one histogram",
		"runqlen -C -T 1      # a histogram per CPU each second, with the time",
		"runqlen -O -C 1 5    # occupancy per CPU",
		"runqlen --output json 10  # a report every ten seconds, as JSON",
	},
	Object: loadBpf,
}, options{Sampled: source.DefaultSampled()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	plan := o.Plan()
	if o.Occupancy {
		plan.MapEntries = map[string]uint32{"hists": 1, "hists_plain": 1}
		return o.occupancy(plan), nil
	}
	plan.MapEntries = map[string]uint32{"table": 1}
	return &source.Hists[key, label]{
		Plan: plan, Interval: o.Interval,
		Unit: histogram.Values, Slots: "runqlen",
		Label: func(k key) label { return label(k) },
		Keys:  source.Keys(o),
		Due:   o.Due(), Idle: o.keyOf,
	}, nil
}

// keyOf returns the key of the samples of a CPU.
func (o *options) keyOf(cpu uint32) key {
	if !o.CPUs {
		cpu = 0
	}
	return key{cpu}
}

func (o *options) occupancy(plan tool.Plan) tool.Source {
	t := &source.Table[key, counts, row]{
		Plan: plan, Rounds: o.Rounds, Ranking: source.Ranking{Sort: "occupancy_percent"},
		Due: o.Due(),
		Missing: source.MissingWith(func(cpu uint32, idle, _ uint64) (key, counts) {
			return o.keyOf(cpu), counts{Samples: idle}
		}),
		Columns: []string{"cpu", "occupancy_percent", "samples", "queued"},
		Label:   func(k *key, _ *counts) row { return row{CPU: k.CPU} },
		Fill: func(r *row, c *counts, _ time.Duration) {
			r.Samples, r.Queued, r.Occupancy = c.Samples, c.Queued, value.Percent(math.NaN())
			if c.Samples > 0 {
				r.Occupancy = value.Percent(100 * float64(c.Queued) / float64(c.Samples))
			}
		},
	}
	if !o.CPUs {
		t.Columns, t.Off = t.Columns[1:], []string{"cpu"}
	}
	return t
}
