package ring

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakePerf has the buffers of some CPUs, with the clock of a synctest bubble.
type fakePerf struct {
	mu    sync.Mutex
	rings [][][]byte
	woken chan struct{}
	cost  time.Duration // time to read one record
}

func newFakePerf(cpus int) *fakePerf {
	return &fakePerf{rings: make([][][]byte, cpus), woken: make(chan struct{}, 1)}
}

func (f *fakePerf) commit(cpu int, data []byte) {
	f.mu.Lock()
	f.rings[cpu] = append(f.rings[cpu], data)
	f.mu.Unlock()
	f.wake()
}

func (f *fakePerf) wake() error {
	select {
	case f.woken <- struct{}{}:
	default:
	}
	return nil
}

func (f *fakePerf) wait() error  { <-f.woken; return nil }
func (f *fakePerf) Close() error { return nil }

// drain reads the buffers in reverse order. Events that are committed to a buffer while it is read
// are left for the next call.
func (f *fakePerf) drain(yield func([]byte)) error {
	for i := len(f.rings) - 1; i >= 0; i-- {
		f.mu.Lock()
		all := f.rings[i]
		f.rings[i] = nil
		f.mu.Unlock()
		for _, data := range all {
			time.Sleep(f.cost)
			yield(data)
		}
	}
	return nil
}

// readAll reads until the reader is closed. It returns the times of the events and the maximum
// latency.
func readAll(t *testing.T, r Reader) (times []uint64, worst time.Duration) {
	t.Helper()
	for {
		data, err := r.Read()
		switch {
		case errors.Is(err, ErrIdle):
		case errors.Is(err, os.ErrClosed):
			return times, worst
		case err != nil:
			t.Fatal(err)
		default:
			times = append(times, timeOf(data))
			worst = max(worst, time.Duration(uint64(time.Now().UnixNano())-timeOf(data)))
		}
	}
}

// TestPerfOrder checks that events of two CPUs are returned in order, although events are committed
// with a delay, and reading the buffer of one CPU takes longer than hold.
func TestPerfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakePerf(2)
		source.cost = time.Microsecond
		r := &perfReader{source: source}
		const events = 100000
		var sending sync.WaitGroup
		send := func(cpu, n int, gap time.Duration) {
			rnd := rand.New(rand.NewPCG(uint64(cpu), uint64(n)))
			for range n {
				data := event(uint64(time.Now().UnixNano()), 0)
				delay := time.Duration(rnd.IntN(int(hold - time.Millisecond)))
				if rnd.IntN(100) > 0 {
					delay = 0
				}
				sending.Go(func() {
					time.Sleep(delay)
					source.commit(cpu, data)
				})
				time.Sleep(gap)
			}
		}
		sending.Go(func() {
			send(1, 9*events/10, 900*time.Nanosecond)
			time.Sleep(time.Second)
			send(0, events/10-100, 5*time.Microsecond)
		})
		sending.Go(func() { send(0, 100, time.Millisecond) })
		go func() {
			sending.Wait()
			r.Stop()
		}()
		times, _ := readAll(t, r)
		if len(times) != events || !slices.IsSorted(times) {
			t.Errorf("read %d of %d events, sorted: %v", len(times), events, slices.IsSorted(times))
		}
	})
}

func TestPerfLoneEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakePerf(4)
		r := &perfReader{source: source}
		go func() {
			for i := range 100 {
				time.Sleep(time.Duration(i) * time.Millisecond)
				source.commit(i%4, event(uint64(time.Now().UnixNano()), 0))
			}
			r.Stop()
		}()
		times, worst := readAll(t, r)
		if len(times) != 100 || worst > 2*hold {
			t.Errorf("read %d of 100 events, maximum latency %s, want at most %s", len(times), worst, 2*hold)
		}
	})
}

func TestPerfIdleAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakePerf(2)
		r := &perfReader{source: source}
		source.commit(0, event(2, 0))
		source.commit(1, event(1, 0))
		source.commit(1, []byte{}) // a record without an event
		for i, want := range []error{nil, nil, ErrIdle} {
			data, err := r.Read()
			if !errors.Is(err, want) || err == nil && timeOf(data) != uint64(i+1) {
				t.Errorf("read %d: %v, %v, want %v", i, data, err, want)
			}
		}
		source.commit(0, event(3, 0))
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		for i, want := range []error{nil, ErrIdle, os.ErrClosed, os.ErrClosed} {
			if _, err := r.Read(); !errors.Is(err, want) {
				t.Errorf("read %d after Stop: %v, want %v", i, err, want)
			}
		}
	})
}
