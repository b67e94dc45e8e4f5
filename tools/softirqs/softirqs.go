// Package softirqs shows the time in softirqs.
package softirqs

import (
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh softirqs.bpf.c

type options struct {
	source.Interval
	source.Fine
	Dist  bool  `flag:"distributed,d" also:"dist" bpf:"targ_dist" help:"show histograms of the time per run"`
	Count bool  `flag:"count,C" also:"events" help:"also show the number of runs"`
	CPUs  bool  `flag:"per-cpu" bpf:"by_cpu" key:"cpu" help:"separate rows or histograms per CPU"`
	CPU   int32 `flag:"cpu,c" arg:"N" min:"-1" id:"cpu" bpf:"targ_cpu" help:"only on this CPU; -1 means all"`
	source.Ranking
}

// key mirrors struct table_key and struct hist_key.
type key struct{ Vec, CPU uint32 }

// counts mirrors struct table_value.
type counts struct {
	Count, TotalNs, IRQNs uint64
	MaxNs                 source.Max
}

type row struct {
	Vec       value.Softirq `json:"softirq" col:"SOFTIRQ,width=16" help:"name of the softirq as in /proc/softirqs, in lower case; [N] for a number without a name"`
	CPU       uint32        `json:"cpu" col:"CPU,width=5,right" help:"CPU that the softirq ran on; absent without --per-cpu"`
	TotalNs   value.Scaled  `json:"total_ns" col:"TOTAL_usecs,width=14,right" help:"sum of the times of these runs, from softirq_entry to softirq_exit, CLOCK_MONOTONIC, without irq_ns; text shows microseconds"`
	Count     uint64        `json:"count" col:"TOTAL_count,width=11,right" help:"runs that ended in the interval"`
	MaxNs     value.Scaled  `json:"max_ns" col:"MAX_usecs,width=12,right" help:"longest time of one run, without irq_ns; text shows microseconds"`
	AverageNs value.Scaled  `json:"avg_ns" col:"AVG_usecs,width=12,right" help:"mean time of a run, without irq_ns; text shows microseconds"`
	IRQNs     value.Scaled  `json:"irq_ns" col:"IRQ_usecs,width=12,right" help:"time of the handlers of interrupts that occurred during these runs (irq_handler_entry to irq_handler_exit); text shows microseconds"`
}

type label struct {
	Vec value.Softirq `json:"softirq" help:"name of the softirq as in /proc/softirqs, in lower case; [N] for a number without a name"`
	CPU uint32        `json:"cpu" help:"CPU that the softirq ran on"`
}

// Tool is the definition of softirqs.
var Tool = tool.Define(tool.Spec{
	Name:     "softirqs",
	Category: "scheduler",
	Summary:  "Time in soft interrupts (softirqs): total, count, maximum or histogram",
	Description: `Measures the time that CPUs spend in softirqs: network receive and transmit, timers, block I/O completion, tasklets, the scheduler's load balancing, RCU. A run is one call of the softirq's function, from softirq_entry to softirq_exit. The counts are those of /proc/softirqs.

Softirqs run when an interrupt ends, when a task enables them again, and in the threads ksoftirqd. The time of interrupt handlers that run meanwhile is not part of the softirq's time, but in the column irq_ns. Interrupts without a handler, such as the local timer of x86, remain included.

With PREEMPT_RT, softirqs run in threads and can be preempted. Their time then includes the time in which the thread does not run. Where two tasks can run the same softirq on a CPU at once (PREEMPT_RT, kernel 6.18 and later), runs that another one overlaps are lost (unobserved).

The task filters select softirqs that run while such a task is current: usually it has only been interrupted. A task that receives or sends packets can run their softirq itself.`,
	Peers: []string{
		"-c is --cpu, as in both peers, so --cgroup has no short name.",
		"-C adds the number of runs, as in libbpf-tools; -C of BCC shows only that.",
		"-T has an effect on histograms only: tables always have the time.",
		"The time does not include the handlers of interrupts that occur meanwhile; that of the peers does.",
		"Text shows fractions of microseconds.",
	},
	Overhead: "0.36 us per softirq: 160 ns at its start and 197 ns at its end (95,000 softirqs a second, virtual machine, kernel 6.18, --stats).",
	Examples: []string{
		"softirqs 1 10               # a report each second, ten times",
		"softirqs -C --per-cpu -c 0  # one CPU, with counts",
		"softirqs -d -N              # histograms, in nanoseconds",
		"softirqs --filter 'max_ns > 1000000' 10  # softirqs with a run of more than 1 ms",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"sort": "", "rows": ""},
}, options{CPU: -1}, build)

// softirqs is more than NR_SOFTIRQS of the kernel, which is 10.
const softirqs = 16

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Dist {
		if err := o.Absent("distributed"); err != nil {
			return nil, err
		}
		return &source.Hists[key, label]{
			Plan:     tool.Plan{MapEntries: map[string]uint32{"table": 1}},
			Interval: o.Interval,
			Unit:     o.Unit(),
			Label:    func(k key) label { return label{value.Softirq(k.Vec), k.CPU} },
			Keys:     append([]string{"softirq"}, source.Keys(o)...),
			Bounds:   map[string]uint32{"softirq": softirqs, "cpu": 1}, // a CPU has only its own
		}, nil
	}
	t := &source.Table[key, counts, row]{
		Plan:    tool.Plan{MapEntries: map[string]uint32{"hists": 1, "hists_plain": 1}},
		Rounds:  o.Rounds,
		Ranking: o.Ranking,
		MaxKeys: softirqs,
		Columns: []string{"softirq"},
		Label:   func(k *key, _ *counts) row { return row{Vec: value.Softirq(k.Vec), CPU: k.CPU} },
		Fill:    func(r *row, c *counts, _ time.Duration) { r.fill(c, uint64(o.Unit())) },
	}
	o.arrange(t)
	return t, nil
}

// arrange selects columns and their order.
func (o *options) arrange(t *source.Table[key, counts, row]) {
	if t.Sort == "" {
		t.Sort = "total_ns"
	}
	if o.CPUs {
		t.Columns = append(t.Columns, "cpu")
	} else {
		t.Off = []string{"cpu"}
	}
	if t.Columns = append(t.Columns, "total_ns"); o.Count {
		t.Columns = append(t.Columns, "count")
	}
	if o.Nanoseconds {
		t.Headers = map[string]string{"total_ns": "TOTAL_nsecs", "max_ns": "MAX_nsecs", "avg_ns": "AVG_nsecs", "irq_ns": "IRQ_nsecs"}
	}
}

func (r *row) fill(c *counts, unit uint64) {
	ns := func(n uint64) value.Scaled { return value.Scaled{Ns: n, Unit: unit} }
	r.Count, r.TotalNs, r.MaxNs, r.IRQNs = c.Count, ns(c.TotalNs), ns(uint64(c.MaxNs)), ns(c.IRQNs)
	r.AverageNs = ns(c.TotalNs / max(1, c.Count))
}
