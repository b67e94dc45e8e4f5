// Package wqlat shows the latency of workqueues as a histogram.
package wqlat

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh wqlat.bpf.c

type options struct {
	source.Interval
	source.Fine
	Workqueues bool   `flag:"workqueues,W" bpf:"by_workqueue" key:"workqueue" help:"one histogram per workqueue"`
	Functions  bool   `flag:"functions" bpf:"by_function" key:"function" help:"one histogram per function of the works"`
	Workqueue  string `flag:"wqname,w" arg:"NAME" bpf:"targ_workqueue" help:"only this workqueue"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	Function  uint64
	Workqueue [32]byte
}

type label struct {
	Workqueue value.Name `json:"workqueue" help:"name of the workqueue, such as events; the kernel cuts it after 23 bytes, from 6.9 on after 31"`
	Function  string     `json:"function" help:"function of the work; its address without CAP_SYSLOG"`
}

// Tool is the definition of wqlat.
var Tool = tool.Define(tool.Spec{
	Name:     "wqlat",
	Category: "scheduler",
	Summary:  "Workqueue latency, from queueing a work to its start, as a histogram",
	Description: `Measures how long works wait in the kernel's workqueues: from workqueue_queue_work, when a work is put into a workqueue, to workqueue_execute_start, just before its function is called. The clock is CLOCK_MONOTONIC.

The time includes waiting for a free worker thread (kworker), for other works if the workqueue limits how many run at once, and for a CPU. The delay of a delayed work is not included: its timer puts it into the workqueue. Works of BH workqueues (kernel 6.9 and later) run in softirqs and are included. A long latency means that the workers are busy with slow works, or get no CPU.

The task filters select works by the task that is current when they are queued. In an interrupt that is the interrupted task.

Counters in the summary: waiting: works that were queued and had not begun when the run ended; cancelled: works that were cancelled before they began; no_queue, without task filters and --wqname: works that began and were not observed to be queued, because that was before the start of the run, or where the kernel does not run BPF programs. They are in no histogram.`,
	Peers: []string{
		"-W and -w can be combined with --functions and the task filters.",
		"Histograms are counted until the end of the wait; works that are cancelled are reported instead of forgotten.",
	},
	Examples: []string{
		"wqlat 1 10                 # a report each second, ten times",
		"wqlat -W --duration 5s     # by workqueue, over five seconds",
		"wqlat -w events --functions  # works of one workqueue, by function",
		"wqlat -W --filter 'p99 > 10000' 10  # workqueues with a p99 above 10 ms",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	h := &source.Hists[histKey, label]{
		Plan:     tool.Plan{Settle: []tool.Iterator{{Program: "settle", Map: "queued"}}},
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label:    func(k histKey) label { return o.label(&k, env) },
		Keys:     source.Keys(o),
	}
	if o.Functions {
		h.Keep = []system.Capability{system.CapSyslog}
	}
	return h, nil
}

// label converts a key to a label. Histograms with equal labels are added.
func (o *options) label(k *histKey, env *tool.Env) label {
	l := label{Workqueue: value.NameOf(k.Workqueue[:])}
	if o.Functions {
		l.Function = env.KernelName(k.Function)
	}
	return l
}
