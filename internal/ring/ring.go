// Package ring reads the events that BPF programs send, from a ring buffer or,
// where the kernel has none, from perf buffers.
package ring

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// ErrIdle is returned by Read when there is nothing to read for now: time to show
// what was read.
var ErrIdle = errors.New("no events for now")

// Reader reads events in the order of their time; those of different CPUs that are
// microseconds apart may be the other way round. A sample is good until the next Read.
type Reader interface {
	// Read returns the next sample. It waits for one, except after a sample that
	// was the last for now: then it returns ErrIdle once. Returns os.ErrClosed after
	// Stop, when all that was there has been read, and after Close.
	//
	// A sample from a perf buffer may have up to 7 bytes more than were sent.
	Read() ([]byte, error)
	// Stop lets Read return what is there and then os.ErrClosed. It may be called
	// while Read waits.
	Stop() error
	Close() error
}

// New returns a reader of the map "events". perCPUBytes is the size of each CPU's
// perf buffer, if it is these.
func New(events *ebpf.Map, perCPUBytes int) (Reader, error) {
	if events.Type() == ebpf.PerfEventArray {
		r, err := newPerf(events, perCPUBytes)
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

// Programs wake the reader for one event and then, for event_wakeup_ns (40 ms,
// event.bpf.h), for none. So the reader looks by itself when that time is over; waits
// are cut to whole milliseconds, therefore 42. From then on an event wakes it again,
// but one that was decided on before may have been preempted on its way: the reader
// goes on looking for a second, and then now and then, as each look costs some 100 us.
const (
	lookSoon  = 42 * time.Millisecond
	lookLater = 50 * time.Millisecond
	lookRest  = time.Second
)

// source is what a ringReader needs of a [ringbuf.Reader].
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

// look makes ReadInto look into the ring after a while, if it is not woken before.
func (r *ringReader) look(after time.Duration) {
	r.source.SetDeadline(time.Now().Add(after))
}

// show makes the next ReadInto return at once if there is no further sample.
func (r *ringReader) show() {
	if !r.shown {
		r.shown = true
		r.source.SetDeadline(time.Unix(1, 0))
	}
}

func (r *ringReader) Stop() error  { return r.source.Flush() }
func (r *ringReader) Close() error { return r.source.Close() }
