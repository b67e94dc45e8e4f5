package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/system"
)

// The kernel measures the run time of programs during a second of each minute, because that slows down
// all programs of the machine. A tool that is paused starts again after a while.
const (
	measureFor   = time.Second
	measureEvery = time.Minute
	pauseFor     = 10 * time.Minute
)

// pause is the cause of the end of a run that exceeds the budget.
type pause struct {
	length time.Duration
	reason string
}

func (p *pause) Error() string { return p.reason }

// cost is the CPU time of a tool as a share of one CPU.
type cost struct {
	runner   *runner
	runs     bool // else it is paused, starts again later, or has no hooks yet
	programs float64
	own      float64            // its part of the agent's CPU time, by rows
	program  map[string]float64 // the parts of programs
}

func (c cost) sum() float64 { return c.programs + c.own }

// limitCPU measures the CPU time of programs and agent every minute until the context is done, and pauses
// the most expensive tool when it exceeds the limit. An error that remains is reported once.
func (a *Agent) limitCPU(ctx context.Context) {
	m, reported := newMeter(a.all), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(measureEvery - measureFor):
		}
		costs, err := m.measure(ctx)
		if err != nil && err.Error() != reported {
			a.notify("max_cpu: the CPU time of programs is not measured, only that of the agent: %v", err)
			reported = err.Error()
		}
		a.enforce(costs, a.maxCPU())
	}
}

// maxCPU returns the limit: that of the command line, or else that of the current configuration.
func (a *Agent) maxCPU() float64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return float64(cmp.Or(a.MaxCPU, a.config.MaxCPU)) / 100
}

// enforce pauses the most expensive tool of those that run if the sum exceeds the limit.
func (a *Agent) enforce(costs []cost, limit float64) {
	var sum float64
	var running []cost
	for _, c := range costs {
		sum += c.sum()
		c.runner.export(a.host.own, &c)
		if c.runs {
			running = append(running, c)
		}
	}
	if sum <= limit || len(running) == 0 {
		return
	}
	most := slices.MaxFunc(running, func(a, b cost) int { return cmp.Compare(a.sum(), b.sum()) })
	most.runner.pause(&pause{pauseFor, fmt.Sprintf(
		"paused because programs and agent used %.2f %% of a CPU, more than the %.2f %% of max_cpu; this tool used %.2f %%",
		100*sum, 100*limit, 100*most.sum(),
	)})
}

// export updates the metrics of the cost, unless the runner has ended and removed them.
func (r *runner) export(o *own, c *cost) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.removed {
		return
	}
	name := r.entry.name()
	o.cpu.Set(c.sum(), name)
	for program, share := range c.program {
		if r.programs == nil {
			r.programs = map[string]bool{}
		}
		r.programs[program] = true
		o.program.Set(share, name, program)
	}
}

// remove removes the metrics that describe the state of the tool: the configuration does not contain it
// any more.
func (r *runner) remove(o *own) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	name := r.entry.name()
	for _, g := range []*metric.Gauge{o.up, o.paused, o.cpu} {
		g.Remove(name)
	}
	for program := range r.programs {
		o.program.Remove(name, program)
	}
	r.removed = true
}

// pause ends the current run.
func (r *runner) pause(p *pause) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.end != nil {
		r.end(p)
	}
}

// runs reports whether the tool runs, so that it can be paused.
func (r *runner) runs() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.end != nil
}

// runtimes returns the CPU time of each program of the current run.
func (r *runner) runtimes() (map[string]time.Duration, error) {
	r.mutex.Lock()
	stream := r.stream
	r.mutex.Unlock()
	if stream == nil {
		return nil, nil
	}
	return stream.Runtimes()
}

// meter measures CPU time.
type meter struct {
	runners func() []*runner
	at      time.Time // previous measurement
	cpu     time.Duration
	rows    map[*runner]uint64
}

func newMeter(runners func() []*runner) *meter {
	return &meter{runners: runners, at: time.Now(), cpu: system.ProcessCPU(), rows: map[*runner]uint64{}}
}

// measure measures the programs for a second, and the agent since the previous measurement. With an
// error the result contains only the agent.
func (m *meter) measure(ctx context.Context) ([]cost, error) {
	costs, err := m.programs(ctx)
	now, cpu := time.Now(), system.ProcessCPU()
	own := float64(cpu-m.cpu) / float64(now.Sub(m.at))
	m.at, m.cpu = now, cpu
	delivered, all := make([]uint64, len(costs)), uint64(0)
	rows := map[*runner]uint64{}
	for i, c := range costs {
		n := c.runner.rows.Load()
		delivered[i] = n - m.rows[c.runner]
		all += delivered[i]
		rows[c.runner] = n
	}
	m.rows = rows
	for i := range costs {
		if all > 0 {
			costs[i].own = own * float64(delivered[i]) / float64(all)
		} else {
			costs[i].own = own / float64(len(costs))
		}
	}
	return costs, err
}

// programs measures the programs of all tools for a second.
func (m *meter) programs(ctx context.Context) ([]cost, error) {
	var costs []cost
	for _, r := range m.runners() {
		costs = append(costs, cost{runner: r, runs: r.runs()})
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return costs, fmt.Errorf("enable statistics: %w", err)
	}
	defer stats.Close()
	begin := make([]map[string]time.Duration, len(costs))
	for i, c := range costs {
		if begin[i], err = c.runner.runtimes(); err != nil {
			return costs, err
		}
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(measureFor):
	}
	length := time.Since(begun)
	for i, c := range costs {
		end, err := c.runner.runtimes()
		if err != nil {
			return costs, err
		}
		costs[i].program = make(map[string]float64, len(end))
		for program, t := range end {
			if t < begin[i][program] { // the tool has been started again
				continue
			}
			share := float64(t-begin[i][program]) / float64(length)
			costs[i].program[program] = share
			costs[i].programs += share
		}
	}
	return costs, nil
}
