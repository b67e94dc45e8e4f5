// Package cpuwalk samples which CPUs run tasks.
package cpuwalk

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cpuwalk.bpf.c

type options struct {
	source.Rounds
	source.Sampled
}

// Mirrors of struct table_key and struct table_value.
type (
	key    struct{ CPU uint32 }
	counts struct{ Samples, Busy, Idle, Missed uint64 }
)

type row struct {
	CPU     uint32        `json:"cpu" col:"CPU,width=4" help:"CPU"`
	Busy    uint64        `json:"count" col:"COUNT,width=9,right" help:"samples of this CPU in which a task ran, with a task filter a matching one"`
	Samples uint64        `json:"samples" col:"SAMPLES,width=9,right" help:"all samples of this CPU, including those that the kernel did not take while the CPU was idle"`
	Percent value.Percent `json:"busy_percent" col:"BUSY,width=8,right" help:"share of the time in which a task ran, with a task filter a matching one: count in percent of samples; missed samples are distributed as those that were taken while the CPU was not idle, and without any of these it is absent"`
	Missed  uint64        `json:"missed" col:"MISSED,width=9,right" help:"samples that were due while the CPU was not idle, and that the kernel did not take; also counted as lost (unobserved)"`
}

// Tool is the definition of cpuwalk.
var Tool = tool.Define(tool.Spec{
	Name:     "cpuwalk",
	Category: "scheduler",
	Summary:  "Sample which CPUs run tasks: load balance, and use of one CPU only",
	Description: `Samples each CPU at regular intervals and counts the samples in which a task runs. A CPU that is always idle has a row with count 0. This shows whether the load is distributed over all CPUs; with a task filter, which CPUs a process uses.

Samples are triggered by the CPU clock of perf events (PERF_COUNT_SW_CPU_CLOCK), 99 times a second on each CPU, so that they do not coincide with activities that occur 100 times a second. Idle CPUs are sampled too. CPUs that come online later are sampled from then on.

The kernel can take fewer samples than are due: on an idle CPU whose timer tick is stopped, when the timer expires too late, as at high frequencies, or for process 1 of a guest that hides it. A sample that was due while the CPU was idle, by the idle time in /proc/stat, is counted as a sample of an idle CPU. Others are lost, and counted as missed and unobserved.

The task is the one that the sample interrupts. Interrupts count for the task that they interrupt, and those of an idle CPU are not counted.`,
	Peers: []string{
		"bpftrace's cpuwalk.bt shows a linear histogram of at most 1,000 CPUs, without idle ones; here each CPU has a row, also if it was idle.",
		"Intervals, the frequency and task filters are options; in bpftrace they are edited in the script.",
	},
	Examples: []string{
		"cpuwalk 10 1             # ten seconds",
		"cpuwalk -p 1234 1        # the CPUs that one process uses, each second",
		"cpuwalk --filter 'busy_percent > 90' 1  # busy CPUs",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Sampled: source.DefaultSampled()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[key, counts, row]{
		Due: o.Due(), Missing: source.MissingWith(missing),
		Plan: o.Plan(), Rounds: o.Rounds, Ranking: source.Ranking{Sort: "+cpu"},
		Columns: []string{"cpu", "count", "samples", "busy_percent"},
		Label:   func(k *key, _ *counts) row { return row{CPU: k.CPU} },
		Fill: func(r *row, c *counts, _ time.Duration) {
			r.Busy, r.Samples, r.Missed, r.Percent = c.Busy, c.Samples, c.Missed, c.percent()
		},
	}, nil
}

// missing returns the counts of samples that were not taken.
func missing(cpu uint32, idle, missed uint64) (key, counts) {
	return key{cpu}, counts{Samples: idle, Idle: idle, Missed: missed}
}

func (c *counts) percent() value.Percent {
	taken, missed := float64(c.Samples-c.Idle), float64(c.Missed) // while the CPU was not idle
	switch {
	case c.Samples+c.Missed == 0, taken == 0 && missed > 0:
		return value.Percent(math.NaN())
	case taken == 0:
		return 0
	}
	return value.Percent(100 * float64(c.Busy) * (taken + missed) / taken / (float64(c.Samples) + missed))
}
