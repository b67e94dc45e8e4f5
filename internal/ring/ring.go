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

// Reader reads events in the order of their time. A sample is good until the next Read.
type Reader interface {
	// Read returns the next sample. It waits for one, except after a sample that
	// was the last for now: then it returns ErrIdle once. Returns os.ErrClosed after
	// Close, when all that was there has been read.
	Read() ([]byte, error)
	// Stop lets Read return what is there and then os.ErrClosed.
	Stop() error
	Close() error
}

// New returns a reader of the map "events".
func New(events *ebpf.Map, perCPUBytes int) (Reader, error) {
	if events.Type() == ebpf.PerfEventArray {
		return newPerf(events, perCPUBytes)
	}
	r, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("create ring buffer reader: %w", err)
	}
	return &ringReader{reader: r}, nil
}

// Programs wake the reader for the first event in a while and then let it be
// (event.bpf.h), so it looks again by itself until it finds nothing; the longer
// last look is for an event that was late to be committed.
const (
	lookAgain = 10 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

type ringReader struct {
	reader *ringbuf.Reader
	record ringbuf.Record
	empty  bool // the last sample was the last for now
	read   bool // a sample was read since the last look
	last   bool // the last look was begun
}

func (r *ringReader) Read() ([]byte, error) {
	if r.empty {
		r.empty = false
		r.last = false
		r.reader.SetDeadline(time.Now().Add(lookAgain))
		return nil, ErrIdle
	}
	for {
		err := r.reader.ReadInto(&r.record)
		switch {
		case err == nil:
			r.read = true
			r.empty = r.record.Remaining == 0
			return r.record.RawSample, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.nextLook()
		case errors.Is(err, ringbuf.ErrFlushed):
			return nil, os.ErrClosed
		default:
			return nil, fmt.Errorf("read ring buffer: %w", err)
		}
	}
}

func (r *ringReader) nextLook() {
	switch {
	case r.read:
		r.reader.SetDeadline(time.Now().Add(lookAgain))
	case !r.last:
		r.last = true
		r.reader.SetDeadline(time.Now().Add(lastLook))
	default:
		r.reader.SetDeadline(time.Time{})
	}
	r.read = false
}

func (r *ringReader) Stop() error  { return r.reader.Flush() }
func (r *ringReader) Close() error { return r.reader.Close() }
