package ring

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

const (
	// hold is how long an event is delayed so that earlier events of other CPUs come first. An
	// event is in its buffer within microseconds of its time; the rest allows for programs that are
	// interrupted or preempted in between.
	hold = 20 * time.Millisecond
	// pause is how long the reader sleeps while it delays events.
	pause = 5 * time.Millisecond
)

// perfSource is the part of [perfBuffers] that a perfReader uses.
type perfSource interface {
	// wait returns when a buffer is not empty, after wake, or after pollIdle.
	wait() error
	// drain reads the buffers one after another, each up to its current end. The caller may keep
	// the samples.
	drain(yield func(sample []byte)) error
	wake() error
	Close() error
}

// perfReader sorts the events of the buffers of several CPUs by time.
//
// An event that was read at least hold before a pass through all buffers starts can be returned
// after that pass: all earlier events were in their buffers by then.
type perfReader struct {
	source   perfSource
	queue    queue
	returned bool // Read returns ErrIdle before it waits
	stopping atomic.Bool
	closed   bool
}

func newPerf(events *ebpf.Map, bytes int) (*perfReader, error) {
	b, err := newPerfBuffers(events, bytes)
	if err != nil {
		return nil, err
	}
	return &perfReader{source: b}, nil
}

func (r *perfReader) Read() ([]byte, error) {
	for {
		if data := r.queue.next(); data != nil {
			r.returned = true
			return data, nil
		}
		if r.returned {
			r.returned = false
			return nil, ErrIdle
		}
		if r.closed {
			return nil, os.ErrClosed
		}
		if err := r.gather(); err != nil {
			return nil, fmt.Errorf("read perf buffer: %w", err)
		}
		r.returned = !r.closed && r.queue.pending() == 0
	}
}

// gather waits for new events, or until delayed ones can be returned, and makes a pass.
func (r *perfReader) gather() error {
	if r.queue.pending() > 0 {
		time.Sleep(pause)
	} else if err := r.source.wait(); err != nil {
		return err
	}
	return r.pass()
}

// pass reads all buffers, and releases the events that have been delayed for long enough.
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

func (r *perfReader) Wake() error { return r.source.wake() }

func (r *perfReader) Close() error { return r.source.Close() }
