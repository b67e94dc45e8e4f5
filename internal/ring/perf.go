package ring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
	"golang.org/x/sys/unix"
)

const (
	// hold is how long an event is kept back for earlier ones of other CPUs. An event
	// is in its buffer within microseconds of its time; the rest is for a program that
	// was interrupted or preempted in between.
	hold = 20 * time.Millisecond
	// pause is how long the reader sleeps while it holds events back.
	pause = 5 * time.Millisecond
)

// perfSource is what a perfReader needs of a [perf.Reader].
type perfSource interface {
	ReadInto(*perf.Record) error
	Flush() error
	Close() error
}

// perfReader puts the events of several CPUs' buffers in order.
//
// Whatever was read a hold before a pass through all buffers begins may be shown when
// that pass is over: an event that is earlier than it is in its buffer by then.
type perfReader struct {
	source   perfSource
	queue    queue
	shown    bool // a sample was shown since the last ErrIdle
	stopping atomic.Bool
	closed   bool
}

func newPerf(events *ebpf.Map, perCPUBytes int) (*perfReader, error) {
	r, err := perf.NewReader(events, perCPUBytes)
	if err != nil && strings.HasSuffix(err.Error(), "can't mmap: "+unix.EPERM.Error()) {
		// The library does not wrap this one: the buffers are more than may be locked.
		return nil, fmt.Errorf("map perf buffer: %w", unix.EPERM)
	}
	if err != nil {
		return nil, fmt.Errorf("create perf buffer reader: %w", err)
	}
	return &perfReader{source: r}, nil
}

func (r *perfReader) Read() ([]byte, error) {
	for {
		if data := r.queue.next(); data != nil {
			r.shown = true
			return data, nil
		}
		if r.shown {
			r.shown = false
			return nil, ErrIdle
		}
		if r.closed {
			return nil, os.ErrClosed
		}
		if err := r.gather(); err != nil {
			return nil, fmt.Errorf("read perf buffer: %w", err)
		}
	}
}

// gather waits for events, or for those that it has to become ready, and makes a pass.
func (r *perfReader) gather() error {
	if r.queue.held() > 0 {
		time.Sleep(pause)
		return r.pass()
	}
	if err := r.readOne(); err != nil && !errors.Is(err, perf.ErrFlushed) {
		return err
	}
	return r.pass()
}

// pass reads what all buffers have, and releases what has been held for long enough.
// Flush is what makes ReadInto go to each buffer once more and then say so.
func (r *perfReader) pass() error {
	last := r.stopping.Load()
	ready := time.Now().Add(-hold)
	if err := r.source.Flush(); err != nil {
		return err
	}
	for {
		err := r.readOne()
		if errors.Is(err, perf.ErrFlushed) {
			break
		}
		if err != nil {
			return err
		}
	}
	if last {
		r.closed, ready = true, time.Now()
	}
	r.queue.release(ready)
	return nil
}

func (r *perfReader) readOne() error {
	var rec perf.Record
	if err := r.source.ReadInto(&rec); err != nil {
		return err
	}
	// A record that says how many were lost has no sample: bpf_perf_event_output has
	// failed for each of those, so the program has counted them.
	if len(rec.RawSample) >= timeSize {
		r.queue.add(rec.RawSample, time.Now())
	}
	return nil
}

func (r *perfReader) Stop() error {
	r.stopping.Store(true)
	return r.source.Flush()
}

func (r *perfReader) Close() error { return r.source.Close() }
