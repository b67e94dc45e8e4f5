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
	"github.com/corescope/corescope/internal/tool"
)

// pauseFor is the time after which a tool that is paused starts again.
const pauseFor = 10 * time.Minute

// schedule is when the kernel measures the run time of programs: for a part of the time only, because that
// slows down all programs of the machine.
type schedule struct {
	length time.Duration // of a measurement
	every  time.Duration // between their starts
	next   time.Duration // the same after a tool was made to count fewer events
}

var usualSchedule = schedule{length: time.Second, every: time.Minute, next: 6 * time.Second}

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
	samples  bool               // it can count one of N events
	sample   uint32             // that N
	program  map[string]float64 // the parts of programs
}

func (c cost) sum() float64 { return c.programs + c.own }

// canSample reports whether the tool can count fewer events than it does.
func (c cost) canSample() bool { return c.samples && c.sample < tool.MaxSample }

// avoidable returns the CPU time that would be saved at most by counting one of tool.MaxSample events.
func (c cost) avoidable() float64 {
	if !c.canSample() {
		return 0
	}
	return c.programs * (1 - float64(c.sample)/tool.MaxSample)
}

// limitCPU measures the CPU time of programs and agent until the context is done, and enforces the limit. An
// error that remains is reported once.
func (a *Agent) limitCPU(ctx context.Context, s schedule) {
	m, reported := newMeter(a.all), ""
	for wait := s.every; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - s.length):
		}
		costs, err := m.measure(ctx, s.length)
		if err != nil && err.Error() != reported {
			a.notify("max_cpu: the CPU time of programs is not measured, only that of the agent: %v", err)
			reported = err.Error()
		}
		wait = s.every
		if a.enforce(costs, a.maxCPU()) {
			wait = s.next
		}
	}
}

// maxCPU returns the limit: that of the command line, or else that of the current configuration.
func (a *Agent) maxCPU() float64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return float64(cmp.Or(a.MaxCPU, a.config.MaxCPU)) / 100
}

// enforce makes a tool count fewer events, or pauses it, if the sum exceeds the limit, and makes one count more
// if there is room. It reports whether one now counts fewer, so that it should soon be measured again.
func (a *Agent) enforce(costs []cost, limit float64) bool {
	var sum, avoidable float64
	var running []cost
	for _, c := range costs {
		sum += c.sum()
		c.runner.export(a.host.own, &c)
		if c.runs {
			running = append(running, c)
			avoidable += c.avoidable()
		}
	}
	switch {
	case len(running) == 0:
		return false
	case sum <= limit:
		a.relax(running, sum, limit)
		return false
	}
	reason := func(c cost) string {
		return fmt.Sprintf(
			"because programs and agent used %.2f %% of a CPU, more than the %.2f %% of max_cpu; this tool used %.2f %%",
			100*sum, 100*limit, 100*c.sum(),
		)
	}
	if avoidable > 0 && sum-avoidable <= limit {
		most := slices.MaxFunc(running, func(a, b cost) int { return cmp.Compare(a.avoidable(), b.avoidable()) })
		a.sample(most, 2*most.sample, reason(most))
		return true
	}
	most := slices.MaxFunc(running, func(a, b cost) int { return cmp.Compare(a.sum(), b.sum()) })
	most.runner.pause(&pause{pauseFor, "paused " + reason(most)})
	return false
}

// room is the part of the limit up to which a tool may count more events: less than all of it, so that a tool
// does not change back and forth.
const room = 0.8

// relax makes the tool that counts the smallest part of its events count twice as many, if the sum then remains
// below the limit even if that doubles the time of its programs.
func (a *Agent) relax(running []cost, sum, limit float64) {
	least := slices.MaxFunc(running, func(a, b cost) int { return cmp.Compare(a.sample, b.sample) })
	if least.samples && least.sample > 1 && sum+least.programs <= room*limit {
		a.sample(least, least.sample/2, fmt.Sprintf("because programs and agent used %.2f %% of a CPU, and max_cpu is %.2f %%", 100*sum, 100*limit))
	}
}

// sample makes a tool count one of n events, and reports that.
func (a *Agent) sample(c cost, n uint32, reason string) {
	name := c.runner.entry.name()
	if err := c.runner.setSample(n); err != nil {
		a.notify("%s: %v", name, err)
		return
	}
	a.host.own.sampling.Set(float64(n), name)
	if n == 1 {
		a.notify("%s: counts all events again, %s", name, reason)
	} else {
		a.notify("%s: counts one of %d events as %d, %s", name, n, n, reason)
	}
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
	for _, g := range []*metric.Gauge{o.up, o.paused, o.cpu, o.sampling} {
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

// setSample makes this run and those that follow count one of n events.
func (r *runner) setSample(n uint32) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sample = n
	if r.stream == nil {
		return nil
	}
	return r.stream.Sample(n)
}

// cost returns what is known of the tool before it is measured. It runs if it can be paused.
func (r *runner) cost() cost {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return cost{
		runner: r, runs: r.end != nil, samples: r.stream != nil && r.stream.CanSample(), sample: max(1, r.sample),
	}
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

// measure measures the programs for a while, and the agent since the previous measurement. With an
// error the result contains only the agent.
func (m *meter) measure(ctx context.Context, length time.Duration) ([]cost, error) {
	costs, err := m.programs(ctx, length)
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

// programs measures the programs of all tools for a while.
func (m *meter) programs(ctx context.Context, length time.Duration) ([]cost, error) {
	var costs []cost
	for _, r := range m.runners() {
		costs = append(costs, r.cost())
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
	case <-time.After(length):
	}
	length = time.Since(begun)
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
