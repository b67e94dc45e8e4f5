// Package hardirqs shows the time in interrupt handlers.
package hardirqs

import (
	"errors"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh hardirqs.bpf.c

type options struct {
	source.Interval
	source.Fine
	Dist  bool  `flag:"distributed,d" also:"dist" bpf:"targ_dist" help:"show histograms of the time per run of a handler"`
	CPUs  bool  `flag:"per-cpu,C" also:"CPU" bpf:"by_cpu" key:"cpu" help:"separate rows or histograms per CPU"`
	Count bool  `flag:"count" help:"show only numbers, no times, sorted by number"`
	CPU   int32 `flag:"cpu,s" arg:"N" min:"-1" id:"cpu" bpf:"targ_cpu" help:"only on this CPU; -1 means all"`
	source.Ranking
}

// key mirrors struct table_key and struct hist_key.
type key struct {
	IRQ, CPU uint32
	Name     [32]byte
}

// counts mirrors struct table_value.
type counts struct {
	Count, TotalNs, Unhandled, Woken uint64
	MaxNs                            source.Max
}

type row struct {
	Name      value.Name   `json:"hardirq" col:"HARDIRQ,width=26" help:"name of the handler, as in /proc/interrupts"`
	IRQ       uint32       `json:"irq" col:"IRQ,width=5,right" help:"number of the interrupt, as in /proc/interrupts"`
	CPU       uint32       `json:"cpu" col:"CPU,width=5,right" help:"CPU that the handler ran on; absent without --per-cpu"`
	Count     uint64       `json:"count" col:"TOTAL_count,width=11,right" help:"runs of the handler that ended in the interval"`
	TotalNs   value.Scaled `json:"total_ns" col:"TOTAL_usecs,width=14,right" help:"sum of the times of these runs, from irq_handler_entry to irq_handler_exit, CLOCK_MONOTONIC, without the time of handlers nested in them; text shows microseconds"`
	MaxNs     value.Scaled `json:"max_ns" col:"MAX_usecs,width=12,right" help:"longest time of one run; text shows microseconds"`
	AverageNs value.Scaled `json:"avg_ns" col:"AVG_usecs,width=12,right" help:"mean time of a run; text shows microseconds"`
	Unhandled uint64       `json:"unhandled" col:"UNHANDLED,width=10,right" help:"runs that returned IRQ_NONE: the interrupt was not from the device of this handler; usual if devices share an interrupt"`
	Woken     uint64       `json:"thread_wakeups" col:"WAKEUPS,width=10,right,counter" help:"runs that woke the thread of the interrupt (IRQ_WAKE_THREAD); its time is not included"`
}

type label struct {
	Name value.Name `json:"hardirq" help:"name of the handler, as in /proc/interrupts"`
	IRQ  uint32     `json:"irq" help:"number of the interrupt, as in /proc/interrupts"`
	CPU  uint32     `json:"cpu" help:"CPU that the handler ran on"`
}

// Tool is the definition of hardirqs.
var Tool = tool.Define(tool.Spec{
	Name:     "hardirqs",
	Category: "scheduler",
	Summary:  "Time in hard interrupt (IRQ) handlers: count, total, maximum or histogram",
	Description: `Counts the runs of interrupt handlers and measures their time, by interrupt and handler, from irq_handler_entry to irq_handler_exit.

Each handler of a shared interrupt has its own row. If a handler runs another one, as those of GPIO controllers do, the time of the inner one belongs only to the inner one.

Interrupts without a handler have no rows: on x86 the local timer (LOC in /proc/interrupts), rescheduling (RES), function calls (CAL) and the like. On arm64 the timer has a handler; interprocessor interrupts have none.

A handler can leave its work to a thread of the kernel, named irq/NUMBER-NAME. With PREEMPT_RT, or the kernel parameter threadirqs, almost all do. The thread is a task: use offcputime, runqlat or profile to see its time. Softirqs that run after an interrupt are not included either: see softirqs(8).

An interrupt has little to do with the task that it interrupts. The task filters select the interrupts that occur while such a task runs.`,
	Peers: []string{
		"-C is --per-cpu, as in libbpf-tools; -C of BCC is --count.",
		"-c is --cgroup, as in libbpf-tools; -c of BCC is -s, --cpu.",
		"-T has an effect on histograms only: tables always have the time.",
		"Rows are by number and name of the interrupt; in the peers, interrupts with the same name share a row.",
		"The time of nested handlers counts once; in the peers, handlers that nest replace the start time of each other.",
		"Text shows fractions of microseconds; the peers round the time of each run down.",
	},
	Examples: []string{
		"hardirqs 1 10             # a report each second, ten times",
		"hardirqs -C --duration 5s # by CPU, over five seconds",
		"hardirqs -d -N            # histograms, in nanoseconds",
		"hardirqs --filter 'max_ns > 100000' 10  # handlers that took more than 100 us",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"cgroup": "c", "sort": "", "rows": ""},
}, options{CPU: -1}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Dist {
		if o.Count {
			return nil, errors.New("--count and --distributed cannot be combined: histograms show times")
		}
		if err := o.Absent("distributed"); err != nil {
			return nil, err
		}
		return &source.Hists[key, label]{
			Plan:     tool.Plan{MapEntries: map[string]uint32{"table": 1}},
			Interval: o.Interval,
			Unit:     o.Unit(),
			Label:    func(k key) label { return label{value.NameOf(k.Name[:]), k.IRQ, k.CPU} },
			Keys:     append([]string{"hardirq", "irq"}, source.Keys(o)...),
		}, nil
	}
	t := &source.Table[key, counts, row]{
		Plan:    tool.Plan{MapEntries: map[string]uint32{"hists": 1, "hists_plain": 1}},
		Rounds:  o.Rounds,
		Ranking: o.Ranking,
		MaxKeys: 1024, // on one CPU
		Columns: []string{"hardirq", "irq", "cpu", "count", "total_ns", "max_ns"},
		Label:   func(k *key, _ *counts) row { return row{Name: value.NameOf(k.Name[:]), IRQ: k.IRQ, CPU: k.CPU} },
		Fill:    func(r *row, c *counts, _ time.Duration) { r.fill(c, uint64(o.Unit())) },
	}
	o.arrange(t)
	return t, nil
}

// arrange selects columns and their order.
func (o *options) arrange(t *source.Table[key, counts, row]) {
	if t.Sort == "" {
		t.Sort = "total_ns"
		if o.Count {
			t.Sort = "count"
		}
	}
	if !o.CPUs {
		t.Off = []string{"cpu"}
		t.Columns = append(t.Columns[:2], t.Columns[3:]...)
	}
	if o.Count {
		t.Columns = t.Columns[:len(t.Columns)-2]
	}
	if o.Nanoseconds {
		t.Headers = map[string]string{"total_ns": "TOTAL_nsecs", "max_ns": "MAX_nsecs", "avg_ns": "AVG_nsecs"}
	}
}

func (r *row) fill(c *counts, unit uint64) {
	r.Count, r.Unhandled, r.Woken = c.Count, c.Unhandled, c.Woken
	r.TotalNs, r.MaxNs = value.Scaled{Ns: c.TotalNs, Unit: unit}, value.Scaled{Ns: uint64(c.MaxNs), Unit: unit}
	r.AverageNs = value.Scaled{Ns: c.TotalNs / max(1, c.Count), Unit: unit}
}
