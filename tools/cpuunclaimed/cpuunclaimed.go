// Package cpuunclaimed samples idle CPUs while tasks wait for other CPUs.
package cpuunclaimed

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cpuunclaimed.bpf.c

type options struct {
	source.Interval
	source.Sampled
	CSV     bool `flag:"csv,j" sets:"output=csv" help:"CSV, same as --output csv"`
	FullCSV bool `flag:"fullcsv,J" sets:"output=csv" help:"same as --csv"`
}

// counts mirrors struct totals.
type counts struct{ Samples, CPUs, Busy, Waiting, Unclaimed uint64 }

type row struct {
	CPU       value.Percent `json:"cpu_percent" col:"%CPU,width=8,right" help:"CPUs with a runnable task, in percent of the online CPUs: mean of all samples; absent without samples"`
	Unclaimed value.Percent `json:"unclaimed_idle_percent" col:"UNCLAIMED,width=10,right" help:"idle CPUs that waiting tasks could use, in percent of the online CPUs: in a sample the smaller of the number of idle CPUs and the number of waiting tasks, mean of all samples; absent without samples"`
	Waiting   float64       `json:"waiting" col:"WAITING,width=8,right" help:"tasks that wait for a CPU, of all CPUs together: mean of all samples"`
	CPUs      float64       `json:"cpus" col:"CPUS,width=7,right" help:"online CPUs: mean of all samples"`
	Samples   uint64        `json:"samples" col:"SAMPLES,width=8,right" help:"number of samples; each looks at all CPUs"`
}

// Tool is the definition of cpuunclaimed.
var Tool = tool.Define(tool.Spec{
	Name:     "cpuunclaimed",
	Category: "scheduler",
	Summary:  "Share of CPUs that are idle while tasks wait for other CPUs (unclaimed idle CPUs, load imbalance)",
	Description: `Samples the run queues of all online CPUs at the same moment, 99 times a second, and shows per interval (one second by default) how many CPUs were busy, and how many were idle although tasks waited for another CPU.

A CPU is busy if a runnable task is on its run queue; that task runs, and further ones wait. In each sample, as many idle CPUs are unclaimed as there are waiting tasks. Short times of imbalance are normal, because the scheduler moves tasks only now and then. It may also not be allowed to: a task can be bound to CPUs (taskset, cpuset, per-CPU kernel threads). This tool does not look at such limits.

Samples are triggered by the CPU clock of perf events (PERF_COUNT_SW_CPU_CLOCK) on one CPU, the first one that is online. If it goes offline there are no samples until it is online again. The lengths of run queues are read without locks, within some microseconds. The kernel takes fewer samples than requested while that CPU is idle and its timer tick is stopped, and at high frequencies: the column samples counts those taken. runqlen(8) describes which tasks are on a run queue. The kernel needs CONFIG_FAIR_GROUP_SCHED and, before 5.19, a readable /proc/kallsyms.`,
	Peers: []string{
		"One program reads all run queues at once. BCC samples each CPU on its own and combines the samples in user space, which fails if they drift apart.",
		"Tasks of all cgroups and scheduling classes are counted; BCC counts those of the cgroup whose task runs.",
		"-j and -J write CSV with a line per interval; BCC writes one per sample and CPU.",
		"The interval can be shorter than 0.2 seconds.",
	},
	Examples: []string{
		"cpuunclaimed                  # a line each second",
		"cpuunclaimed -T 5 12          # with the time, twelve lines of five seconds each",
		"cpuunclaimed --filter 'unclaimed_idle_percent > 5'  # only intervals with imbalance",
	},
	Object: loadBpf,
}, options{Interval: source.Interval{Rounds: source.Rounds{Every: flags.Duration(time.Second)}}, Sampled: source.DefaultSampled()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan := o.Plan()
	vars, unreadable := env.PerCPU()
	if unreadable != nil && !errors.Is(unreadable, tool.ErrUnsupported) {
		return nil, unreadable
	}
	plan.Variables = vars
	plan.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		cpu, err := firstOnline()
		p.Sampling.CPUs = []int{cpu}
		return errors.Join(unreadable, source.CheckFrequency(o.Frequency), err)
	}
	t := &source.Table[struct{}, counts, row]{
		Plan: plan, Rounds: o.Rounds, Columns: []string{"cpu_percent", "unclaimed_idle_percent"}, Fill: fill,
	}
	if o.Timestamp {
		t.Columns = append([]string{"time"}, t.Columns...)
	}
	return t, nil
}

// firstOnline returns the first online CPU.
func firstOnline() (cpu int, err error) {
	list, err := system.OnlineCPUs("/")
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(list, &cpu); err != nil {
		return 0, fmt.Errorf("read online CPUs %q: %w", list, err)
	}
	return cpu, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	*r = row{CPU: value.Percent(math.NaN()), Unclaimed: value.Percent(math.NaN()), Samples: c.Samples}
	if c.Samples == 0 || c.CPUs == 0 {
		return
	}
	r.CPU = value.Percent(100 * float64(c.Busy) / float64(c.CPUs))
	r.Unclaimed = value.Percent(100 * float64(c.Unclaimed) / float64(c.CPUs))
	r.Waiting = float64(c.Waiting) / float64(c.Samples)
	r.CPUs = float64(c.CPUs) / float64(c.Samples)
}
