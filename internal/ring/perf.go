package ring

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
)

// hold is how long an event is kept back for earlier ones of other CPUs. An event
// is in its buffer within microseconds; the rest is for the reader to come round.
const hold = 20 * time.Millisecond

// perfReader puts the events of several CPUs' buffers in order. Every event begins
// with its time (struct task_info), so a sample's first 8 bytes are its place.
type perfReader struct {
	reader  *perf.Reader
	pending []perfSample // sorted up to ready
	ready   int          // how many of pending may be shown
	closing bool
	shown   bool // a sample was shown since the last ErrIdle
}

type perfSample struct {
	time uint64
	read time.Time
	data []byte
}

func newPerf(events *ebpf.Map, perCPUBytes int) (*perfReader, error) {
	r, err := perf.NewReader(events, perCPUBytes)
	if err != nil {
		return nil, fmt.Errorf("create perf buffer reader: %w", err)
	}
	return &perfReader{reader: r}, nil
}

func (r *perfReader) Read() ([]byte, error) {
	for r.ready == 0 {
		if r.shown {
			r.shown = false
			return nil, ErrIdle
		}
		if r.closing && len(r.pending) == 0 {
			return nil, os.ErrClosed
		}
		if err := r.gather(); err != nil {
			return nil, err
		}
	}
	s := r.pending[0]
	r.pending = r.pending[1:]
	r.ready--
	r.shown = true
	return s.data, nil
}

// gather reads what comes within the hold, then frees what has waited for it.
func (r *perfReader) gather() error {
	if len(r.pending) == 0 {
		r.reader.SetDeadline(time.Time{})
	} else {
		r.reader.SetDeadline(time.Now().Add(hold / 2))
	}
	for !r.closing {
		var rec perf.Record
		err := r.reader.ReadInto(&rec)
		if errors.Is(err, perf.ErrFlushed) {
			r.closing = true
			break
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("read perf buffer: %w", err)
		}
		r.keep(&rec)
		if rec.Remaining == 0 {
			break
		}
	}
	r.release()
	return nil
}

// keep leaves out the records that say how many were lost: bpf_perf_event_output has
// failed for each of those, so the program has counted them.
func (r *perfReader) keep(rec *perf.Record) {
	if len(rec.RawSample) < 8 {
		return
	}
	t := binary.NativeEndian.Uint64(rec.RawSample)
	r.pending = append(r.pending, perfSample{t, time.Now(), rec.RawSample})
}

func (r *perfReader) release() {
	slices.SortStableFunc(r.pending, func(a, b perfSample) int { return cmp.Compare(a.time, b.time) })
	limit := time.Now().Add(-hold)
	for r.ready < len(r.pending) && (r.closing || r.pending[r.ready].read.Before(limit)) {
		r.ready++
	}
}

func (r *perfReader) Stop() error  { return r.reader.Flush() }
func (r *perfReader) Close() error { return r.reader.Close() }
