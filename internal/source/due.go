package source

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

// Due finds out how many samples of each CPU were due and not taken (samples.bpf.h): from the period,
// the time, and the time in which the CPU was idle. A sample that was due while the CPU was idle is
// known without being taken. Others are lost.
type Due struct {
	period time.Duration
	cpus   map[int]*cpuDue
	at     time.Time // of the previous measurement

	pending []missing
}

// cpuDue sums since the start, in samples.
type cpuDue struct {
	taken, idle    uint64 // at the start
	idleTime       time.Duration
	due            float64
	missed, unbusy uint64 // not taken: while the CPU was not idle, and while it was idle
}

// missing are the samples of a CPU that were due since the previous report and not taken.
type missing struct {
	cpu          uint32
	idle, missed uint64
}

// cpuSamples is struct cpu_samples.
type cpuSamples struct{ Taken, Idle uint64 }

// Due returns the measurement of a run.
func (s Sampled) Due() *Due {
	return &Due{period: time.Second / time.Duration(s.Frequency)}
}

// measure adds what is missing since the previous call to pending. The first call begins.
func (d *Due) measure(s *tool.Session) error {
	if d == nil {
		return nil
	}
	var taken []cpuSamples
	if err := s.Objects.Maps["cpu_samples"].Lookup(uint32(0), &taken); err != nil {
		return fmt.Errorf("read number of samples: %w", err)
	}
	now := time.Now()
	idle, err := system.IdleTimes("/")
	if err != nil {
		return err
	}
	before := d.cpus
	d.cpus = map[int]*cpuDue{}
	for cpu, t := range idle {
		if cpu >= len(taken) {
			continue
		}
		c := before[cpu]
		if c == nil { // it has come online
			c = &cpuDue{taken: taken[cpu].Taken, idle: taken[cpu].Idle, idleTime: t}
		} else {
			c.due += float64(now.Sub(d.at)) / float64(d.period)
		}
		d.cpus[cpu] = c
		d.pending = append(d.pending, c.missing(uint32(cpu), taken[cpu], t-c.idleTime, d.period))
	}
	d.at = now
	return nil
}

// missing returns what is missing since the previous call. One sample more can be due at the time of
// a measurement. The idle time is a difference of numbers that are rounded down to units of IdleUnit.
func (c *cpuDue) missing(cpu uint32, now cpuSamples, idle, period time.Duration) missing {
	known := now.Taken - c.taken + c.missed + c.unbusy
	due := uint64(max(c.due-1, 0))
	if due <= known {
		return missing{cpu: cpu}
	}
	lacking := due - known
	if idle > 0 {
		idle += system.IdleUnit
	}
	idleDue := uint64(idle / period)
	m := missing{cpu: cpu, idle: min(lacking, idleDue-min(idleDue, now.Idle-c.idle+c.unbusy))}
	m.missed = lacking - m.idle
	c.unbusy += m.idle
	c.missed += m.missed
	return m
}

// take returns what is pending, and counts what is lost.
func (d *Due) take(s *tool.Session) []missing {
	if d == nil {
		return nil
	}
	all := d.pending
	d.pending = nil
	for _, m := range all {
		s.Missed += m.missed
	}
	return all
}
