package main

import (
	"context"
	"fmt"
)

// sampled are the benchmarks of tools that sample what runs: what they cost does not follow
// from events, but from time. The load keeps two CPUs busy for count milliseconds.
var sampled = []benchmark{
	{tool: "profile", options: []string{"-F", "99"}, load: "spins", unit: "ms", count: 20_000},
}

// shareLimit is how much of one CPU they may take, in %.
const shareLimit = 1

// shares measures what sampling tools take of a CPU.
func (s *settings) shares(ctx context.Context) ([]result, error) {
	if !s.whole {
		return nil, nil
	}
	var all []result
	for i := range sampled {
		m, err := newMeasurer(&sampled[i], s)
		if err != nil {
			return nil, err
		}
		r, err := m.share(ctx)
		m.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// share is of the programs and of the process together, from its start to its end: names of
// functions are read as stacks come, or not before the report.
func (m *measurer) share(ctx context.Context) (result, error) {
	var values [2][]float64
	for round := range m.rounds {
		progress("%s: share of a CPU, round %d of %d", m.name(), round+1, m.rounds)
		for i := range m.subjects {
			percent, err := m.shareOf(ctx, &m.subjects[i])
			if m.lacksPeer(&m.subjects[i], err) {
				break
			}
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", m.subjects[i].name, err)
			}
			values[i] = append(values[i], percent)
		}
	}
	r := m.compare("BPF and user space together", "% of a CPU", values, 0)
	r.Limit = shareLimit
	return r, nil
}

func (m *measurer) shareOf(ctx context.Context, sub *subject) (float64, error) {
	r, err := sub.start(ctx, m.dir)
	if err != nil {
		return 0, err
	}
	defer r.kill()
	if err := r.settled(); err != nil {
		return 0, err
	}
	before, err := r.usage()
	if err != nil {
		return 0, err
	}
	l, err := m.runLoad(ctx, m.count, 0)
	if err != nil {
		return 0, err
	}
	after, err := r.usage()
	if err != nil {
		return 0, err
	}
	if _, err := r.stop(); err != nil {
		return 0, err
	}
	state := r.cmd.ProcessState
	taken := after.sub(before).kernel + state.UserTime() + state.SystemTime()
	return 100 * taken.Seconds() / l.Wall.Seconds(), nil
}
