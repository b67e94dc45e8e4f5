// Package ring reads events that BPF programs send, from a ring buffer or from perf buffers.
package ring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// ErrIdle is returned by Read if no further event is available now, so that the caller can flush
// its output and report lost events.
var ErrIdle = errors.New("no events for now")

// Reader reads events in the order of their time. Events of different CPUs can be in the wrong
// order if they are only microseconds apart. A sample is valid until the next Read.
type Reader interface {
	// Read waits for the next sample and returns it. If no further sample is available after one
	// was returned, it returns ErrIdle, and then about once a second while none arrives. After Stop
	// it returns the remaining samples and then os.ErrClosed, after Close os.ErrClosed.
	//
	// A sample from a perf buffer can have up to 7 bytes of padding at the end.
	Read() ([]byte, error)
	// Wake makes Read return the samples that were sent before the call, which otherwise can wait for the
	// delay and longer. It can be called while Read waits.
	Wake() error
	// Stop makes Read return the remaining samples and then os.ErrClosed. It can be called while
	// Read waits.
	Stop() error
	Close() error
}

// Delay is the default of event_wakeup_ns of the programs (event.bpf.h): while events arrive
// continuously, they wake the reader of a ring buffer only that often.
const Delay = 40 * time.Millisecond

// New returns a reader of the map "events". If that is an array of perf buffers, bytes is the total
// size of the buffers: each possible CPU has an equal share, rounded up to a power of two of pages.
// Otherwise delay is event_wakeup_ns of the programs.
func New(events *ebpf.Map, bytes int, delay time.Duration) (Reader, error) {
	if events.Type() == ebpf.PerfEventArray {
		r, err := newPerf(events, bytes)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	r, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("create ring buffer reader: %w", err)
	}
	return newRing(r, delay), nil
}

// BPF programs wake the reader for an event only if the last wake-up is at least the delay ago. So
// after a wake-up the reader polls the ring once that time has passed; timeouts are truncated to
// milliseconds, therefore 2 ms later. From then on, events wake the reader again. But a program that
// has decided before not to wake it may have been preempted: the reader polls for another second, and
// then at longer intervals, because each poll costs about 100 us.
const (
	pollFirst = 2 * time.Millisecond  // after ErrIdle and the delay
	pollNext  = 10 * time.Millisecond // after the delay, for a second
	pollIdle  = time.Second
)

// source is the part of [ringbuf.Reader] that a ringReader uses.
type source interface {
	ReadInto(*ringbuf.Record) error
	SetDeadline(time.Time)
	Flush() error
	Close() error
}

type ringReader struct {
	source   source
	delay    time.Duration
	record   ringbuf.Record
	returned bool      // a sample was returned since the last ErrIdle
	idle     time.Time // time of the last ErrIdle
	stopping atomic.Bool
	ending   bool // all samples that are left are read, then the reader is closed
	closed   bool
}

func newRing(s source, delay time.Duration) *ringReader {
	r := &ringReader{source: s, delay: delay, idle: time.Now()}
	r.pollAfter(delay + pollNext)
	return r
}

func (r *ringReader) Read() ([]byte, error) {
	for !r.closed {
		err := r.source.ReadInto(&r.record)
		switch {
		case err == nil:
			r.setReturned()
			return r.record.RawSample, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && r.ending:
			r.closed = true
		case errors.Is(err, os.ErrDeadlineExceeded) && r.returned:
			r.returned, r.idle = false, time.Now()
			r.pollAfter(r.delay + pollFirst)
			return nil, ErrIdle
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(r.idle) < pollIdle:
			r.pollAfter(r.delay + pollNext)
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.pollAfter(pollIdle)
			return nil, ErrIdle
		case errors.Is(err, ringbuf.ErrFlushed) && r.stopping.Load():
			// It can be the result of an earlier Wake: then samples are left that were sent before Stop.
			r.ending = true
			r.source.SetDeadline(time.Unix(1, 0))
		case errors.Is(err, ringbuf.ErrFlushed):
			r.returned, r.idle = false, time.Now()
			r.pollAfter(r.delay + pollFirst)
			return nil, ErrIdle
		default:
			return nil, fmt.Errorf("read ring buffer: %w", err)
		}
	}
	return nil, os.ErrClosed
}

// pollAfter makes ReadInto return after a while, unless an event wakes it before.
func (r *ringReader) pollAfter(after time.Duration) {
	r.source.SetDeadline(time.Now().Add(after))
}

// setReturned makes the next ReadInto return immediately if there is no further sample.
func (r *ringReader) setReturned() {
	if !r.returned && !r.ending {
		r.returned = true
		r.source.SetDeadline(time.Unix(1, 0))
	}
}

func (r *ringReader) Wake() error { return r.source.Flush() }

func (r *ringReader) Stop() error {
	r.stopping.Store(true)
	return r.source.Flush()
}

func (r *ringReader) Close() error { return r.source.Close() }
