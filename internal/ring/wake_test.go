package ring

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// TestWake checks that events that did not wake the reader are read when Wake is called, long before the
// reader polls, that the reader goes on, and that Stop returns what is left.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newFake()
		r := newRing(ring, time.Minute)
		read := make(chan string)
		go func() {
			defer close(read)
			for {
				data, err := r.Read()
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err == nil {
					read <- string(data)
				}
			}
		}()
		for _, data := range []string{"a", "b"} {
			ring.commit([]byte(data), false)
			begin := time.Now()
			if err := r.Wake(); err != nil {
				t.Fatal(err)
			}
			if got := <-read; got != data || time.Since(begin) > time.Millisecond {
				t.Errorf("%q was read after %v, want %q at once", got, time.Since(begin), data)
			}
		}
		ring.commit([]byte("c"), false)
		if err := errors.Join(r.Wake(), r.Stop()); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != "c" {
			t.Errorf("read %q after Stop, want c", got)
		}
		if _, isOpen := <-read; isOpen {
			t.Error("the reader does not end")
		}
	})
}

// script is a ring buffer that returns results in this order: a sample, or an error.
type script []any

func (s *script) Flush() error          { return nil }
func (s *script) Close() error          { return nil }
func (s *script) SetDeadline(time.Time) {}

func (s *script) ReadInto(rec *ringbuf.Record) error {
	result := (*s)[0]
	*s = (*s)[1:]
	if err, isError := result.(error); isError {
		return err
	}
	rec.RawSample = []byte(result.(string))
	return nil
}

// TestStopAfterWake checks that a sample is returned that was sent after the reader had handled an
// earlier Wake, but before Stop.
func TestStopAfterWake(t *testing.T) {
	r := newRing(&script{ringbuf.ErrFlushed, "late", os.ErrDeadlineExceeded}, time.Minute)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if data, err := r.Read(); string(data) != "late" {
		t.Errorf("read %q, error %v, want the sample", data, err)
	}
	if data, err := r.Read(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read %q, error %v, want %v", data, err, os.ErrClosed)
	}
}
