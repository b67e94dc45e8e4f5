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

// fakeRing is a ring buffer and its [ringbuf.Reader], in the time of a synctest bubble.
type fakeRing struct {
	mu       sync.Mutex
	records  [][]byte // nil is one that was discarded
	wake     chan struct{}
	flush    chan struct{}
	deadline time.Time
	haveData bool
	pending  error
	looks    int // waits that ended by their deadline
}

func newFake() *fakeRing {
	return &fakeRing{wake: make(chan struct{}, 1), flush: make(chan struct{}, 1)}
}

// commit puts a record into the ring, and wakes the reader if told to.
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

func (f *fakeRing) Flush() error            { f.flush <- struct{}{}; return nil }
func (f *fakeRing) Close() error            { return nil }
func (f *fakeRing) SetDeadline(d time.Time) { f.deadline = d }

// ReadInto does as the real one: after a wake-up, a deadline or a flush it returns
// what is there before it waits, or says why it did not, again.
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
		// epoll_wait has whole milliseconds, and what is over is rounded down.
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
		f.looks++
		return os.ErrDeadlineExceeded
	}
}

// producer decides on wake-ups as event_send of event.bpf.h does.
type producer struct {
	ring *fakeRing
	last time.Time
}

// Numbers of events.
const (
	announced = iota
	unannounced
)

// send is an event that is decided on now and committed when the delay is over.
func (p *producer) send(delay time.Duration) {
	now := time.Now()
	n := uint64(unannounced)
	if now.Sub(p.last) >= 10*time.Millisecond {
		p.last, n = now, announced
	}
	time.AfterFunc(delay, func() { p.ring.commit(event(uint64(time.Now().UnixNano()), n), n == announced) })
}

// Whatever the programs and the scheduler do, an event is read within 50 ms of being
// in the ring: woken for or not, preempted, with a wake-up that went with an event that
// did not fit. Only one that comes unannounced, and when the reader has been at rest
// for a second, waits longer, but not above a second.
func TestEventsAreReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring)
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
			most := lookLater
			if committed.Sub(last) >= lookRest && numberOf(data) == unannounced {
				most = lookRest
			}
			if took := time.Since(committed); took > most {
				t.Errorf("event read %s after it was in the ring, %s after the last one", took, committed.Sub(last))
			}
			last = time.Now()
		}
		if read != events {
			t.Errorf("%d of %d events were read", read, events)
		}
	})
}

// produce sends bursts of events with pauses about as long as a look, and long ones.
func produce(ring *fakeRing, events int) {
	rnd := rand.New(rand.NewPCG(3, 4))
	p := &producer{ring: ring}
	pauses := []time.Duration{0, time.Microsecond, 39900 * time.Microsecond, 40 * time.Millisecond, lookSoon, lookLater, lookRest}
	for range events {
		time.Sleep(pauses[rnd.IntN(len(pauses))] + time.Duration(rnd.IntN(2000))*time.Microsecond)
		delay := time.Duration(0)
		switch rnd.IntN(10) {
		case 0:
			p.last = time.Now() // the one that would have woken did not fit
		case 1:
			ring.commit(nil, false)
		case 2:
			delay = time.Duration(rnd.IntN(200)) * time.Millisecond // preempted
		}
		p.send(delay)
	}
	time.Sleep(2 * lookRest)
}

// The last sample for now is followed by ErrIdle at once, so that it is shown at
// once: also when a record that was discarded is behind it.
func TestIdleComesAtOnce(t *testing.T) {
	for name, behind := range map[string]bool{"alone": false, "with a discarded record behind": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := newFake()
				r := newRing(ring)
				for range 3 {
					time.Sleep(time.Second)
					ring.commit(event(1, 1), true)
					ring.commit(event(2, 2), false)
					if behind {
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

// A reader of nothing looks seldom, and does not say that it is idle again.
func TestQuietReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring)
		time.AfterFunc(time.Minute, func() { r.Stop() })
		if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		if ring.looks < 60 || ring.looks > 90 {
			t.Errorf("%d looks in a minute, want one a second and 20 more at first", ring.looks)
		}
	})
}

func TestStopReadsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring)
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
		for range 3 { // and so it stays
			if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%v, want %v", err, os.ErrClosed)
			}
		}
	})
}

// broken fails as a closed or damaged buffer does.
type broken struct {
	*fakeRing
	err error
}

func (b broken) ReadInto(*ringbuf.Record) error { return b.err }

func TestReadErrors(t *testing.T) {
	for _, want := range []error{os.ErrClosed, errors.New("damaged")} {
		if _, err := newRing(broken{newFake(), want}).Read(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
