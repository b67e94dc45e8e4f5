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

// send is an event that is decided on now and committed when the delay is over.
func (p *producer) send(n uint64, delay time.Duration) {
	now := time.Now()
	wake := now.Sub(p.last) >= 10*time.Millisecond
	if wake {
		p.last = now
	}
	time.AfterFunc(delay, func() { p.ring.commit(event(uint64(time.Now().UnixNano()), n), wake) })
}

// Whatever the programs and the scheduler do, an event is read within 100 ms of being
// in the ring: woken for or not, late or not, with a wake-up that was lost.
func TestEventsAreReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(3, 4))
		ring := newFake()
		r := newRing(ring)
		p := &producer{ring: ring}
		const events = 5000
		go func() {
			for n := range uint64(events) {
				// Bursts, pauses about as long as a look, and long ones.
				pauses := []time.Duration{0, time.Microsecond, 9900 * time.Microsecond, 10 * time.Millisecond, lookSoon, lookLater, time.Second}
				time.Sleep(pauses[rnd.IntN(len(pauses))] + time.Duration(rnd.IntN(2000))*time.Microsecond)
				switch rnd.IntN(10) {
				case 0:
					p.last = time.Now() // the one that would have woken did not fit
				case 1:
					ring.commit(nil, false)
				}
				delay := time.Duration(0)
				if rnd.IntN(10) == 0 {
					delay = time.Duration(rnd.IntN(200)) * time.Millisecond // preempted
				}
				p.send(n, delay)
			}
			time.Sleep(time.Second)
			r.Stop()
		}()
		seen := map[uint64]bool{}
		var worst time.Duration
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
			seen[numberOf(data)] = true
			worst = max(worst, time.Duration(uint64(time.Now().UnixNano())-timeOf(data)))
		}
		if len(seen) != events {
			t.Errorf("%d of %d events were read", len(seen), events)
		}
		if worst > lookLater {
			t.Errorf("an event was read %s after it was in the ring", worst)
		}
	})
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
		time.AfterFunc(10*time.Second, func() { r.Stop() })
		if _, err := r.Read(); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		if most := int(10 * time.Second / (lookLater - time.Millisecond)); ring.looks > most {
			t.Errorf("%d looks in 10 s, %d at most", ring.looks, most)
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
