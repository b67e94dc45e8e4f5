package tool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
)

// Rounds are the options of tools that report now and then.
type Rounds struct {
	Every flags.Duration `pos:"interval" help:"time between reports, in seconds or as 500ms; without it there is one report, at the end"`
	Count uint64         `pos:"count" help:"number of reports"`
}

// Interval are [Rounds] whose reports have their time on demand.
type Interval struct {
	Rounds
	Timestamp bool `flag:"timestamp,T" help:"show the time of each report"`
}

// repeat calls report for each interval as it is over, and once more at the end, when
// nothing is attached any more. Between these it does what comes by requests.
func (r *Rounds) repeat(ctx context.Context, s *session, e *epochs, requests <-chan func() error, report func() error) error {
	tick, stop := ticks(time.Duration(r.Every))
	defer stop()
	for {
		select {
		case <-ctx.Done():
			if err := e.end(); err != nil {
				return err
			}
			if err := s.objects.Detach(); err != nil {
				return err
			}
			return report()
		case request := <-requests:
			if err := request(); err != nil {
				return err
			}
			continue
		case <-tick:
			if err := e.cut(s); err != nil {
				return err
			}
			if err := errors.Join(report(), s.sayLost()); err != nil {
				return err
			}
		}
		if s.enough() || r.Count > 0 && s.shown >= r.Count {
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

// epochs cut what programs count into intervals (epoch.bpf.h).
type epochs struct {
	now uint32
	at  time.Time // when the present one began
	// readings are iterators that count at the end of each.
	readings []Iterator
	// last, if set, is called at the end, while all is still attached.
	last func() error
}

func (e *epochs) end() error {
	if e.last == nil {
		return nil
	}
	e.at = time.Now()
	return e.last()
}

// read lets the iterators count.
func (e *epochs) read(s *session) error {
	for _, it := range e.readings {
		if err := s.objects.Iterate(it, func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// cut begins a new epoch, and returns when nobody writes to the old one any more: a
// program that has read the old epoch is over after an RCU grace period.
func (e *epochs) cut(s *session) error {
	if err := e.read(s); err != nil {
		return err
	}
	epoch := s.objects.Variables["count_epoch"]
	if epoch == nil { // what is held is no matter of intervals
		e.at = time.Now()
		return nil
	}
	e.now ^= 1
	if err := epoch.Set(e.now); err != nil {
		return fmt.Errorf("set epoch: %w", err)
	}
	e.at = time.Now()
	system.AwaitGracePeriod()
	return nil
}

// over tells the epochs that nobody writes to any more: all but the present one, or all
// when nothing is attached.
func (e *epochs) over(s *session) func(epoch uint32) bool {
	attached := s.objects.Attached()
	return func(epoch uint32) bool { return !attached || epoch != e.now }
}
