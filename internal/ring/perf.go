package ring

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

const (
	// hold is how long an event is kept back for earlier ones of other CPUs. An event
	// is in its buffer within microseconds of its time; the rest is for a program that
	// was interrupted or preempted in between.
	hold = 20 * time.Millisecond
	// pause is how long the reader sleeps while it holds events back.
	pause = 5 * time.Millisecond
)

// perfSource is what a perfReader needs of [perfBuffers].
type perfSource interface {
	// wait returns when a buffer has something, or after wake.
	wait() error
	// drain gives all that the buffers have when it comes to them. A sample is the
	// caller's from then on.
	drain(yield func(sample []byte)) error
	wake() error
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
	b, err := newPerfBuffers(events, perCPUBytes)
	if err != nil {
		return nil, err
	}
	return &perfReader{source: b}, nil
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
	} else if err := r.source.wait(); err != nil {
		return err
	}
	return r.pass()
}

// pass reads what all buffers have, and releases what has been held for long enough.
func (r *perfReader) pass() error {
	last := r.stopping.Load()
	ready := time.Now().Add(-hold)
	if err := r.source.drain(r.add); err != nil {
		return err
	}
	if last {
		r.closed, ready = true, time.Now()
	}
	r.queue.release(ready)
	return nil
}

func (r *perfReader) add(sample []byte) {
	if len(sample) >= timeSize {
		r.queue.add(sample, time.Now())
	}
}

func (r *perfReader) Stop() error {
	r.stopping.Store(true)
	return r.source.wake()
}

func (r *perfReader) Close() error { return r.source.Close() }
