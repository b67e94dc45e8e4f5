package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// tickRate (events per second) and tickCount define the load during which tools start.
const (
	tickRate  = 500
	tickCount = 1000
)

// starts measures the time from the start of a subject to the first event that it reports.
func (m *measurer) starts(ctx context.Context) (result, error) {
	var took [2][]float64
	for range m.rounds {
		for i := range m.subjects {
			progress("%s: start of %s", m.name(), m.subjects[i].name)
			t, err := m.startTime(ctx, &m.subjects[i])
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", m.subjects[i].name, err)
			}
			took[i] = append(took[i], float64(t)/1e6)
		}
	}
	return m.compare("time to first event", "ms", took, 0.7), nil
}

// startTime starts the subject while the load runs. Rows identify the first reported event; for
// tools without rows it is the first event after the last program was attached.
func (m *measurer) startTime(ctx context.Context, sub *subject) (time.Duration, error) {
	type ended struct {
		*loadResult
		err error
	}
	done := make(chan ended, 1)
	go func() {
		l, err := m.runLoad(ctx, tickCount, tickRate)
		done <- ended{l, err}
	}()
	time.Sleep(100 * time.Millisecond) // any point in time during the load
	r, err := sub.start(ctx, m.dir)
	if err != nil {
		return 0, err
	}
	defer r.kill()
	attached, err := r.attachTime()
	if err != nil {
		return 0, err
	}
	l := <-done
	if l.err != nil {
		return 0, l.err
	}
	if err := r.waitWritten(); err != nil {
		return 0, err
	}
	if _, err := r.stop(); err != nil {
		return 0, err
	}
	if mark := loads[m.load].mark; m.rows == 0 || mark == nil {
		return attached, nil
	}
	first, err := firstSeen(r.out.Name(), loads[m.load].mark)
	if err != nil {
		return 0, err
	}
	return l.Begin.Add(l.Ticks[first]).Sub(r.spawned), nil
}

// attachTime returns the time from the start of the subject until it attached its last program.
func (r *running) attachTime() (time.Duration, error) {
	const quiet = 500 * time.Millisecond
	var last int
	var at time.Duration
	for time.Since(r.spawned) < at+quiet || last == 0 {
		o, err := kernelObjects(r.pid())
		if err != nil || !r.alive() {
			return 0, fmt.Errorf("%w: %s", errUnavailable, r.lastError())
		}
		if o.links > last {
			last, at = o.links, time.Since(r.spawned)
		}
		time.Sleep(time.Millisecond)
	}
	return at, nil
}

func firstSeen(path string, mark func(int) string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	rows := string(b)
	for i := range tickCount {
		if strings.Contains(rows, mark(i)) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("find events of the load: none in %d bytes of output", len(b))
}
