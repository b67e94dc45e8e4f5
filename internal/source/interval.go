package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

// Rounds are the options of tools that report at intervals.
type Rounds struct {
	Every flags.Duration `pos:"interval" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default"`
	Count uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
}

// Interval is [Rounds] with an option for the time of each report.
type Interval struct {
	Rounds
	Timestamp bool `flag:"timestamp,T" help:"show the time of each report"`
}

// repeat calls report at the end of each interval, and once more at the end of the run, after all
// hooks are detached. In between it runs requests.
func (r *Rounds) repeat(ctx context.Context, s *tool.Session, e *epochs, requests <-chan func() error, report func() error) error {
	every := time.Duration(r.Every)
	if every == 0 {
		every = s.Interval
	}
	tick, stop := ticks(every)
	defer stop()
	check, stopChecks := e.checks()
	defer stopChecks()
	for {
		select {
		case <-ctx.Done():
			if err := e.end(s); err != nil {
				return err
			}
			if err := s.Objects.Detach(); err != nil {
				return err
			}
			return report()
		case request := <-requests:
			if err := request(); err != nil {
				return err
			}
			continue
		case <-check:
			if err := e.emptyIfDue(s); err != nil {
				return err
			}
			continue
		case <-tick:
			if err := e.cut(s); err != nil {
				return err
			}
			if err := errors.Join(report(), s.ReportLost()); err != nil {
				return err
			}
		}
		if s.Enough() || r.Count > 0 && s.Shown >= r.Count {
			return nil
		}
	}
}

func ticks(every time.Duration) (<-chan time.Time, func()) {
	if every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}

// epochs divides what programs count into intervals (epoch.bpf.h).
type epochs struct {
	now uint32
	at  time.Time // start of the current epoch
	// readings are iterator programs that run at the end of each interval.
	readings []tool.Iterator
	// due, if set, is measured at the end of each interval and of the run.
	due  *Due
	ends intervalEnds
	// last, if set, is called at the end of the run, while all hooks are still attached.
	last func() error
	// filling, if set, empties the map of counts before it is full.
	filling *filling
}

// checks returns the times at which the map of counts is checked.
func (e *epochs) checks() (<-chan time.Time, func()) {
	if e.filling == nil {
		return ticks(0)
	}
	return ticks(fillCheck)
}

// emptyIfDue begins another epoch and empties the map of counts if it is half full.
func (e *epochs) emptyIfDue(s *tool.Session) error {
	added, err := e.filling.added(s)
	if err != nil || !e.filling.isDue(added, s.Objects.Maps[e.filling.name].MaxEntries()) {
		return err
	}
	if err := e.cut(s); err != nil {
		return err
	}
	return e.filling.drain(s)
}

func (e *epochs) end(s *tool.Session) error {
	if err := e.due.measure(s); err != nil {
		return err
	}
	if e.last == nil {
		return nil
	}
	e.at = time.Now()
	return e.last()
}

// intervalEnds tells programs that count time when an interval ends (interval_end_ns of
// epoch.bpf.h), so that no interval contains time of the next one.
type intervalEnds struct {
	base   time.Time
	baseNs int64 // CLOCK_MONOTONIC at base
}

// soon is the time in which programs learn the end of an interval.
const soon = 5 * time.Millisecond

// set ends an interval soon, waits for that, and returns its end.
func (e *intervalEnds) set(v *ebpf.Variable, epoch uint32) (time.Time, error) {
	now, err := monotonic()
	if err != nil {
		return e.base, err
	}
	if e.base.IsZero() {
		e.base, e.baseNs = time.Now(), now
	}
	end := (now + int64(soon)) &^ 1
	if err := v.Set(uint64(end) | uint64(epoch)); err != nil {
		return e.base, fmt.Errorf("set end of interval: %w", err)
	}
	for ; err == nil && now < end; now, err = monotonic() {
		time.Sleep(time.Duration(end - now))
	}
	return e.base.Add(time.Duration(end - e.baseNs)), err
}

func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return ts.Nano(), nil
}

// endInterval ends the interval for programs that count time, and returns its end.
func (e *epochs) endInterval(s *tool.Session) (at time.Time, err error) {
	if end := s.Objects.Variables["interval_end_ns"]; end != nil {
		return e.ends.set(end, e.now)
	}
	return time.Now(), nil
}

// read runs the iterator programs.
func (e *epochs) read(s *tool.Session) error {
	for _, it := range e.readings {
		if err := s.Objects.Iterate(it, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// cut starts a new epoch and returns once no program can still write to the previous one: a program
// that has read the old epoch has ended after an RCU grace period.
func (e *epochs) cut(s *tool.Session) error {
	end, err := e.endInterval(s)
	if err != nil {
		return err
	}
	if err := errors.Join(e.read(s), e.due.measure(s)); err != nil {
		return err
	}
	epoch := s.Objects.Variables["count_epoch"]
	if epoch == nil { // held resources are not counted per interval
		e.at = time.Now()
		return nil
	}
	if err := e.filling.begin(s); err != nil {
		return err
	}
	e.now ^= 1
	if err := epoch.Set(e.now); err != nil {
		return fmt.Errorf("set epoch: %w", err)
	}
	if e.at = time.Now(); s.Objects.Variables["interval_end_ns"] != nil {
		e.at = end
	}
	return s.Objects.AwaitGracePeriod()
}

// hasEnded returns a function that reports whether an epoch has ended: all but the current one have,
// and after detaching all hooks also the current one.
func (e *epochs) hasEnded(s *tool.Session) func(epoch uint32) bool {
	attached := s.Objects.Attached()
	return func(epoch uint32) bool { return !attached || epoch != e.now }
}
