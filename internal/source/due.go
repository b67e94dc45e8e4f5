package source

import (
	"fmt"
	"slices"
	"time"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

// Due finds out how many samples of each CPU were due and not taken (samples.bpf.h): from the period,
// the time, and the time in which the CPU was idle. A sample that was due while the CPU was idle is
// known without being taken. Others are lost. None are due while the hypervisor runs something else.
type Due struct {
	period time.Duration
	only   []int // the CPUs that are sampled; all if empty
	cpus   map[int]*cpuDue
	at     time.Time // of the previous measurement

	pending []missing
}

// cpuDue sums since the start, in samples.
type cpuDue struct {
	taken, idle    uint64 // at the start
	at             system.CPUTime
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
func (s Sampled) Due() *Due { return due(s.Plan().Sampling) }

func due(s tool.Sampling) *Due {
	if s.Period > 0 {
		return &Due{period: time.Duration(s.Period), only: s.CPUs}
	}
	return &Due{period: time.Second / time.Duration(s.Frequency), only: s.CPUs}
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
	times, err := system.CPUTimes("/")
	if err != nil {
		return err
	}
	before := d.cpus
	d.cpus = map[int]*cpuDue{}
	for cpu, t := range times {
		if cpu >= len(taken) || len(d.only) > 0 && !slices.Contains(d.only, cpu) {
			continue
		}
		c := before[cpu]
		if c == nil { // it has come online
			c = &cpuDue{taken: taken[cpu].Taken, idle: taken[cpu].Idle, at: t}
		} else {
			c.due += float64(now.Sub(d.at)) / float64(d.period)
		}
		d.cpus[cpu] = c
		d.pending = append(d.pending, c.missing(uint32(cpu), taken[cpu], system.CPUTime{Idle: t.Idle - c.at.Idle, Steal: t.Steal - c.at.Steal}, d.period))
	}
	d.at = now
	return nil
}

// missing returns what is missing since the previous call. One sample more can be due at the time of
// a measurement. The times since the start are differences of numbers that are rounded down to units
// of CPUTimeUnit.
func (c *cpuDue) missing(cpu uint32, now cpuSamples, since system.CPUTime, period time.Duration) missing {
	known := now.Taken - c.taken + c.missed + c.unbusy
	idle, steal := roundUp(since.Idle), roundUp(since.Steal)
	due := uint64(max(c.due-1-float64(steal)/float64(period), 0))
	if due <= known {
		return missing{cpu: cpu}
	}
	lacking := due - known
	idleDue := uint64(idle / period)
	m := missing{cpu: cpu, idle: min(lacking, idleDue-min(idleDue, now.Idle-c.idle+c.unbusy))}
	m.missed = lacking - m.idle
	c.unbusy += m.idle
	c.missed += m.missed
	return m
}

// roundUp returns the most that a difference of two rounded times can be.
func roundUp(t time.Duration) time.Duration {
	if t > 0 {
		t += system.CPUTimeUnit
	}
	return t
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
