// Package criticalstat traces long sections of the kernel with interrupts or preemption disabled.
package criticalstat

import (
	"errors"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh criticalstat.bpf.c

type options struct {
	Preempt bool               `flag:"preemptoff,p" help:"sections with preemption disabled"`
	IRQ     bool               `flag:"irqoff,i" help:"sections with interrupts disabled; this is the default"`
	Min     flags.Microseconds `flag:"min,d" arg:"US" bpf:"targ_min_ns" help:"only sections of at least this length: microseconds, or with a unit as 5ms"`
}

// Check returns an error if both kinds are selected.
func (o *options) Check() error {
	if o.Preempt && o.IRQ {
		return errors.New("--preemptoff and --irqoff cannot be combined")
	}
	return nil
}

// event mirrors struct event.
type event struct {
	value.Task
	DeltaNs       value.Micros `json:"delta_ns" col:"TIME (us),width=12,right" help:"length of the section, from disabling to enabling, CLOCK_MONOTONIC; text shows microseconds"`
	StartIP       uint64       `btf:"start_ip"`
	StartParentIP uint64       `btf:"start_parent_ip"`
	EndIP         uint64       `btf:"end_ip"`
	EndParentIP   uint64       `btf:"end_parent_ip"`
	CPU           uint32       `json:"cpu" col:"CPU,width=3,right" help:"CPU of the section"`
	Frames        uint32
	Addresses     [24]uint64 `btf:"stack"`
}

type row struct {
	event
	Start string      `json:"start" col:"SECTION START,width=40" help:"function that disables, and the function that it returns to"`
	End   string      `json:"end" col:"SECTION END,width=40" help:"function that enables, and the function that it returns to"`
	Stack value.Stack `json:"stack" col:"STACK" help:"kernel stack trace at the end of the section, innermost frame first, at most 24 frames; text shows it below the row"`

	env *tool.Env
}

// Decode symbolizes the addresses.
func (r *row) Decode(_ []byte) error {
	r.Start = r.env.KernelName(r.StartIP) + " -> " + r.env.KernelName(r.StartParentIP)
	r.End = r.env.KernelName(r.EndIP) + " -> " + r.env.KernelName(r.EndParentIP)
	r.Stack = r.env.KernelStack(r.Stack, r.Addresses[:min(int(r.Frames), len(r.Addresses))])
	return nil
}

// Tool is the definition of criticalstat.
var Tool = tool.Define(tool.Spec{
	Name:     "criticalstat",
	Category: "scheduler",
	Summary:  "Trace long critical sections: kernel code that disables interrupts or preemption (irqsoff, preemptoff)",
	Description: `Shows sections in which the kernel has interrupts disabled for 100 us or more (irq_disable to irq_enable), or with -p preemption (preempt_disable to preempt_enable). They delay interrupts and tasks on that CPU.

A section begins when interrupts or preemption are disabled that were enabled, and ends when they are enabled again on that CPU. Idle CPUs are not shown. The task is the one that is current at the end.

The kernel must be built with CONFIG_PREEMPTIRQ_TRACEPOINTS, which CONFIG_PREEMPT_TRACER or CONFIG_IRQSOFF_TRACER select. Kernels of most distributions are not; then the tool ends with exit code 4. Function names need CAP_SYSLOG.`,
	Peers: []string{
		"-d is --min, because --duration is the duration of the run in all tools.",
		"A section is a row with a stack trace below it, instead of a block of lines.",
	},
	Examples: []string{
		"criticalstat             # interrupts disabled for 100 us or more",
		"criticalstat -p -d 500   # preemption disabled for 500 us or more",
		"criticalstat --min 1ms --duration 60s  # one minute",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{Min: flags.Microseconds(100 * time.Microsecond)}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	without := "preempt"
	if o.Preempt {
		without = "irq"
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Without: []string{without}, Keep: []system.Capability{system.CapSyslog}},
		Columns:     []string{"time", "pid", "comm", "cpu", "delta_ns", "start", "end", "stack"},
		BufferBytes: 4 << 20,
		Row:         row{env: env},
	}, nil
}
