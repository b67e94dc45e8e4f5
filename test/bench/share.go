package main

import (
	"context"
	"fmt"
)

// sampled are the benchmarks of sampling tools, whose cost is proportional to time, not to
// events. The load keeps two CPUs busy for count milliseconds.
var sampled = []benchmark{
	{tool: "profile", options: []string{"-F", "99"}, load: "spins", unit: "ms", count: 20_000},
}

// shareLimit is the maximum CPU share of a sampling tool, in percent of one CPU.
const shareLimit = 1

// shares measures the CPU share of sampling tools.
func (s *settings) shares(ctx context.Context) ([]result, error) {
	var all []result
	for i := range sampled {
		if !s.wants(&sampled[i]) {
			continue
		}
		m, err := newMeasurer(&sampled[i], s)
		if err != nil {
			return nil, err
		}
		both, err := m.share(ctx)
		m.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		all = append(all, both...)
	}
	return all, nil
}

// share measures the CPU share of BPF programs and process together: while the load runs, and
// over the whole run, which includes start, symbolization and report.
func (m *measurer) share(ctx context.Context) ([]result, error) {
	var sampling, life [2][]float64
	for round := range m.rounds {
		progress("%s: share of a CPU, round %d of %d", m.name(), round+1, m.rounds)
		for i := range m.subjects {
			whileLoaded, wholeRun, err := m.shareOf(ctx, &m.subjects[i])
			if m.dropPeer(&m.subjects[i], err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.subjects[i].name, err)
			}
			sampling[i], life[i] = append(sampling[i], whileLoaded), append(life[i], wholeRun)
		}
	}
	const figure, unit = "CPU share, BPF and user space", "% of a CPU"
	both := []result{
		m.compare(figure+", while sampling", unit, sampling, 0),
		m.compare(figure+", whole run", unit, life, 0),
	}
	for i := range both {
		both[i].Limit = shareLimit
	}
	return both, nil
}

// shareOf returns both figures in percent of the duration of the load.
func (m *measurer) shareOf(ctx context.Context, sub *subject) (sampling, life float64, err error) {
	r, err := sub.start(ctx, m.dir)
	if err != nil {
		return 0, 0, err
	}
	defer r.kill()
	if err := r.waitAttached(); err != nil {
		return 0, 0, err
	}
	before, err := r.usage()
	if err != nil {
		return 0, 0, err
	}
	l, err := m.runLoad(ctx, m.count, 0)
	if err != nil {
		return 0, 0, err
	}
	after, err := r.usage()
	if err != nil {
		return 0, 0, err
	}
	if _, err := r.stop(); err != nil {
		return 0, 0, err
	}
	used, state := after.sub(before), r.cmd.ProcessState
	percent := 100 / l.Wall.Seconds()
	return (used.kernel + used.cpu).Seconds() * percent, (used.kernel + state.UserTime() + state.SystemTime()).Seconds() * percent, nil
}
