// Package softirqslower traces softirqs that start late or run for long.
package softirqslower

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh softirqslower.bpf.c -type stage

type options struct {
	Min flags.Microseconds `flag:"min,m" pos:"min_us" arg:"US" bpf:"targ_min_ns" help:"only times of at least this length: microseconds, or with a unit as 5ms"`
	CPU int32              `flag:"cpu,c" arg:"N" min:"-1" id:"cpu" bpf:"targ_cpu" help:"only on this CPU; -1 means all"`
}

// event mirrors struct event.
type event struct {
	value.Task
	DeltaNs value.Micros  `json:"delta_ns" col:"LAT(us),width=12,right" help:"length of the stage, CLOCK_MONOTONIC; text shows microseconds"`
	Vec     value.Softirq `json:"softirq" col:"SOFTIRQ,width=8" help:"name of the softirq as in /proc/softirqs, in lower case; [N] for a number without a name"`
	CPU     uint32        `json:"cpu" col:"CPU,width=3,right" help:"CPU of the softirq"`
	Number  uint32        `btf:"stage"`
	_       uint32
}

type row struct {
	event
	Stage string `json:"stage" col:"STAGE,width=6" help:"raised: from the first softirq_raise since the last run to softirq_entry; run: from softirq_entry to softirq_exit, including interrupts that occur meanwhile"`
}

// Decode sets the name of the stage.
func (r *row) Decode(_ []byte) error {
	r.Stage = "raised"
	if bpfStage(r.Number) == bpfStageSTAGE_RUN {
		r.Stage = "run"
	}
	return nil
}

// Tool is the definition of softirqslower.
var Tool = tool.Define(tool.Spec{
	Name:     "softirqslower",
	Category: "scheduler",
	Summary:  "Trace slow softirqs: long latency from raise to run, or long run time",
	Description: `Shows softirqs that begin late or run for long: by default 10 ms or more. It shows which softirq delays network packets, timers or tasks on a CPU.

A softirq has two stages. It is raised (softirq_raise), usually by an interrupt, and waits until interrupts and other softirqs have ended, or until the thread ksoftirqd runs. Then it runs, from softirq_entry to softirq_exit. Each stage that is too long is a row, sent when it ends. A softirq that is raised several times before it runs is raised since the first time.

The task columns describe the task that is current at the end of the stage: the task that the softirq interrupts, ksoftirqd, or a task that enables softirqs.`,
	Peers: []string{
		"STAGE is raised or run; the peers show \"irq(hard) to softirq\" and \"softirq runtime\".",
		"A softirq is raised since the first raise; in the peers since the last one, which hides delays of softirqs that are raised often.",
		"The minimum can have a unit, as in 5ms.",
	},
	Examples: []string{
		"softirqslower             # stages of 10 ms or more",
		"softirqslower 1000 -c 2   # 1 ms or more, on CPU 2",
		"softirqslower 5ms --filter 'softirq == \"net_rx\"'  # only network receive",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{Min: flags.Microseconds(10 * time.Millisecond), CPU: -1}, build)

func build(*options, *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Columns:     []string{"time", "stage", "softirq", "delta_ns", "cpu", "comm"},
		BufferBytes: 1 << 20,
	}, nil
}
