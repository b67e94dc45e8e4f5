package ring

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// fakeRing is a ring buffer with its [ringbuf.Reader], with the clock of a synctest bubble.
type fakeRing struct {
	mu       sync.Mutex
	records  [][]byte // nil is a discarded record
	wake     chan struct{}
	flush    chan struct{}
	deadline time.Time
	haveData bool
	pending  error
	polls    int // waits that ended by their deadline
}

func newFake() *fakeRing {
	return &fakeRing{wake: make(chan struct{}, 1), flush: make(chan struct{}, 1)}
}

// commit adds a record to the ring, and wakes the reader if wake is true.
func (f *fakeRing) commit(data []byte, wake bool) {
	f.mu.Lock()
	f.records = append(f.records, data)
	f.mu.Unlock()
	if wake {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func (f *fakeRing) Close() error            { return nil }
func (f *fakeRing) SetDeadline(d time.Time) { f.deadline = d }

// Flush, called twice before the reader notices, is one flush.
func (f *fakeRing) Flush() error {
	select {
	case f.flush <- struct{}{}:
	default:
	}
	return nil
}

// ReadInto behaves like ringbuf.Reader: after a wake-up, a deadline or a flush it returns the
// available records, then the error of that wait, and then waits again.
func (f *fakeRing) ReadInto(rec *ringbuf.Record) error {
	for {
		if !f.haveData {
			if err := f.pending; err != nil {
				f.pending = nil
				return err
			}
			f.pending = f.wait()
			f.haveData = true
		}
		if data, left := f.pop(); data != nil {
			rec.RawSample, rec.Remaining = data, left
			return nil
		}
		f.haveData = false
	}
}

func (f *fakeRing) pop() (data []byte, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.records) > 0 && data == nil {
		data, f.records = f.records[0], f.records[1:]
	}
	return data, len(f.records)
}

func (f *fakeRing) wait() error {
	var timeout <-chan time.Time
	if !f.deadline.IsZero() {
		// The timeout of epoll_wait is in milliseconds, rounded down.
		timeout = time.After(max(0, time.Until(f.deadline)).Truncate(time.Millisecond))
	}
	select {
	case <-f.flush:
		return ringbuf.ErrFlushed
	case <-f.wake:
		return nil
	default:
	}
	select {
	case <-f.flush:
		return ringbuf.ErrFlushed
	case <-f.wake:
		return nil
	case <-timeout:
		f.polls++
		return os.ErrDeadlineExceeded
	}
}

// producer decides about wake-ups like event_send in event.bpf.h.
type producer struct {
	ring *fakeRing
	last time.Time
}

// Numbers of events: whether they wake the reader.
const (
	waking = iota
	notWaking
)

// send decides about the wake-up now, and commits the event after a delay.
func (p *producer) send(delay time.Duration) {
	now := time.Now()
	n := uint64(notWaking)
	if now.Sub(p.last) >= 10*time.Millisecond {
		p.last, n = now, waking
	}
	time.AfterFunc(delay, func() { p.ring.commit(event(uint64(time.Now().UnixNano()), n), n == waking) })
}

// TestReadLatency checks that an event is read within 50 ms after it was committed to the ring,
// whether it wakes the reader or not, if its program was preempted, and if the wake-up was lost
// with an event that did not fit. Only an event without a wake-up that arrives when the reader has
// been idle for a second can take longer, up to a second.
func TestReadLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring, Delay)
		const events = 5000
		go func() {
			produce(ring, events)
			r.Stop()
		}()
		read, last := 0, time.Now()
		for {
			data, err := r.Read()
			if errors.Is(err, ErrIdle) {
				continue
			}
			if errors.Is(err, os.ErrClosed) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			read++
			committed := time.Unix(0, int64(timeOf(data)))
			limit := Delay + pollNext
			if committed.Sub(last) >= pollIdle && numberOf(data) == notWaking {
				limit = pollIdle
			}
			if took := time.Since(committed); took > limit {
				t.Errorf("event was read %s after its commit, want at most %s; last event was %s before", took, limit, committed.Sub(last))
			}
			last = time.Now()
		}
		if read != events {
			t.Errorf("read %d of %d events", read, events)
		}
	})
}

// produce sends bursts of events, with pauses that are about as long as the polling intervals, and
// longer ones.
func produce(ring *fakeRing, events int) {
	rnd := rand.New(rand.NewPCG(3, 4))
	p := &producer{ring: ring}
	pauses := []time.Duration{0, time.Microsecond, Delay - 100*time.Microsecond, Delay, Delay + pollFirst, Delay + pollNext, pollIdle}
	for range events {
		time.Sleep(pauses[rnd.IntN(len(pauses))] + time.Duration(rnd.IntN(2000))*time.Microsecond)
		delay := time.Duration(0)
		switch rnd.IntN(10) {
		case 0:
			p.last = time.Now() // an event with a wake-up did not fit
		case 1:
			ring.commit(nil, false)
		case 2:
			delay = time.Duration(rnd.IntN(200)) * time.Millisecond // preempted
		}
		p.send(delay)
	}
	time.Sleep(2 * pollIdle)
}

// TestIdleIsImmediate checks that ErrIdle follows the last available sample immediately, so that
// the output is flushed, also if a discarded record follows.
func TestIdleIsImmediate(t *testing.T) {
	for name, discarded := range map[string]bool{"no further record": false, "discarded record": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := newFake()
				r := newRing(ring, Delay)
				for range 3 {
					time.Sleep(time.Second)
					ring.commit(event(1, 1), true)
					ring.commit(event(2, 2), false)
					if discarded {
						ring.commit(nil, false)
					}
					begin := time.Now()
					for i, want := range []error{nil, nil, ErrIdle} {
						if _, err := r.Read(); !errors.Is(err, want) {
							t.Errorf("read %d: %v, want %v", i, err, want)
						}
					}
					if took := time.Since(begin); took > 0 {
						t.Errorf("idle after %s", took)
					}
				}
			})
		})
	}
}

// TestIdleReader checks that a reader without events polls rarely, and returns ErrIdle once a second.
func TestIdleReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring, Delay)
		time.AfterFunc(time.Minute, func() { r.Stop() })
		idle := 0
		_, err := r.Read()
		for ; errors.Is(err, ErrIdle); _, err = r.Read() {
			idle++
		}
		if !errors.Is(err, os.ErrClosed) || idle < 58 || idle > 60 {
			t.Errorf("%v, idle %d times in a minute", err, idle)
		}
		if ring.polls < 60 || ring.polls > 90 {
			t.Errorf("%d polls in a minute, want one per second and 20 more at the start", ring.polls)
		}
	})
}

func TestStopReturnsRemainingSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring, Delay)
		for n := range uint64(100) {
			ring.commit(event(n, n), false)
		}
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		for n := range uint64(100) {
			if data, err := r.Read(); err != nil || numberOf(data) != n {
				t.Fatalf("%v, %v, want event %d", data, err, n)
			}
		}
		for range 3 { // repeated calls return the same error
			if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%v, want %v", err, os.ErrClosed)
			}
		}
	})
}

// broken is a ring whose reads fail, as if it were closed or damaged.
type broken struct {
	*fakeRing
	err error
}

func (b broken) ReadInto(*ringbuf.Record) error { return b.err }

func TestReadErrors(t *testing.T) {
	for _, want := range []error{os.ErrClosed, errors.New("damaged")} {
		if _, err := newRing(broken{newFake(), want}, Delay).Read(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
