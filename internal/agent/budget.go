package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

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
	programs float64
	own      float64 // its part of the agent's CPU time, by rows
}

func (c cost) sum() float64 { return c.programs + c.own }

// limitCPU measures the CPU time of programs and agent every minute until the context is done, and pauses
// the most expensive tool when it exceeds the limit, a share of one CPU.
func (a *Agent) limitCPU(ctx context.Context, limit float64) {
	m := newMeter(a.all)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(measureEvery - measureFor):
		}
		costs, err := m.measure(ctx)
		if err != nil {
			a.notify("max_cpu: the CPU time of programs is not measured, only that of the agent: %v", err)
		}
		a.enforce(costs, limit)
	}
}

// enforce pauses the most expensive tool if the sum exceeds the limit.
func (a *Agent) enforce(costs []cost, limit float64) {
	var sum float64
	for _, c := range costs {
		sum += c.sum()
		a.host.own.cpu.Set(c.sum(), c.runner.entry.name())
	}
	if sum <= limit || len(costs) == 0 {
		return
	}
	most := slices.MaxFunc(costs, func(a, b cost) int { return cmp.Compare(a.sum(), b.sum()) })
	most.runner.pause(&pause{pauseFor, fmt.Sprintf(
		"paused because programs and agent used %.2f %% of a CPU, more than the %.2f %% of max_cpu; this tool used %.2f %%",
		100*sum, 100*limit, 100*most.sum(),
	)})
}

// pause ends the current run.
func (r *runner) pause(p *pause) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.end != nil {
		r.end(p)
	}
}

// runtime returns the CPU time of the programs of the current run.
func (r *runner) runtime() (time.Duration, error) {
	r.mutex.Lock()
	stream := r.stream
	r.mutex.Unlock()
	if stream == nil {
		return 0, nil
	}
	return stream.Runtime()
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
		if all == 0 {
			costs[i].own = own / float64(len(costs))
		} else {
			costs[i].own = own * float64(delivered[i]) / float64(all)
		}
	}
	return costs, err
}

// programs measures the programs of all tools for a second.
func (m *meter) programs(ctx context.Context) ([]cost, error) {
	var costs []cost
	for _, r := range m.runners() {
		costs = append(costs, cost{runner: r})
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return costs, fmt.Errorf("enable statistics: %w", err)
	}
	defer stats.Close()
	begin := make([]time.Duration, len(costs))
	for i, c := range costs {
		if begin[i], err = c.runner.runtime(); err != nil {
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
		end, err := c.runner.runtime()
		if err != nil {
			return costs, err
		}
		if end > begin[i] { // a run that has ended meanwhile has no run time
			costs[i].programs = float64(end-begin[i]) / float64(length)
		}
	}
	return costs, nil
}
