// Package ring reads events that BPF programs send, from a ring buffer or from perf buffers.
package ring

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// ErrIdle is returned by Read if no further event is available now, so that the caller can flush its
// output.
var ErrIdle = errors.New("no events for now")

// Reader reads events in the order of their time. Events of different CPUs that are microseconds apart
// can be in the wrong order. A sample is valid until the next Read.
type Reader interface {
	// Read waits for the next sample and returns it. If no further sample is available after one
	// was returned, it returns ErrIdle once. After Stop it returns the remaining samples and then
	// os.ErrClosed, after Close os.ErrClosed.
	//
	// A sample from a perf buffer can have up to 7 bytes of padding at the end.
	Read() ([]byte, error)
	// Stop makes Read return the remaining samples and then os.ErrClosed. It can be called while
	// Read waits.
	Stop() error
	Close() error
}

// New returns a reader of the map "events". If that is an array of perf buffers, bytes is
// the size of all of them together: each possible CPU has an equal share, rounded up to a
// power of two of pages.
func New(events *ebpf.Map, bytes int) (Reader, error) {
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
	return newRing(r), nil
}

// Programs wake the reader for one event, and then for no other for event_wakeup_ns (40 ms,
// event.bpf.h). So the reader polls the ring after that time; waits are truncated to milliseconds,
// therefore 42. After that, an event wakes it again, but a program that has decided before not to
// wake it may have been preempted: the reader polls for another second, and then at longer intervals,
// because each poll costs about 100 us.
const (
	lookSoon  = 42 * time.Millisecond
	lookLater = 50 * time.Millisecond
	lookRest  = time.Second
)

// source is the part of [ringbuf.Reader] that a ringReader uses.
type source interface {
	ReadInto(*ringbuf.Record) error
	SetDeadline(time.Time)
	Flush() error
	Close() error
}

type ringReader struct {
	source source
	record ringbuf.Record
	shown  bool      // a sample was returned since the last ErrIdle
	idle   time.Time // of that
	closed bool
}

func newRing(s source) *ringReader {
	r := &ringReader{source: s, idle: time.Now()}
	r.look(lookLater)
	return r
}

func (r *ringReader) Read() ([]byte, error) {
	for !r.closed {
		err := r.source.ReadInto(&r.record)
		switch {
		case err == nil:
			r.show()
			return r.record.RawSample, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && r.shown:
			r.shown, r.idle = false, time.Now()
			r.look(lookSoon)
			return nil, ErrIdle
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(r.idle) < lookRest:
			r.look(lookLater)
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.look(lookRest)
		case errors.Is(err, ringbuf.ErrFlushed):
			r.closed = true
		default:
			return nil, fmt.Errorf("read ring buffer: %w", err)
		}
	}
	return nil, os.ErrClosed
}

// look makes ReadInto poll the ring after a while, unless it is woken before.
func (r *ringReader) look(after time.Duration) {
	r.source.SetDeadline(time.Now().Add(after))
}

// show makes the next ReadInto return immediately if there is no further sample.
func (r *ringReader) show() {
	if !r.shown {
		r.shown = true
		r.source.SetDeadline(time.Unix(1, 0))
	}
}

func (r *ringReader) Stop() error  { return r.source.Flush() }
func (r *ringReader) Close() error { return r.source.Close() }
