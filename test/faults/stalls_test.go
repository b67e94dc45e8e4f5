package faults

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// suspended is the minimum time for which the tool is suspended: longer than its intervals, and than
// the one at which it reports lost events.
const suspended = 3 * time.Second

// TestSuspended suspends the tool (SIGSTOP) for some seconds while more events happen than the
// buffers hold, and resumes it. Events that found the buffer full are counted as lost.
func TestSuspended(t *testing.T) {
	t.Parallel()
	test := func(s *subject) {
		r := s.command().start(s).await(s)
		all := s.usual()
		r.signal(s, unix.SIGSTOP)
		defer r.signal(s, unix.SIGCONT)
		over := time.After(suspended)
		all.add(s.storms())
		<-over
		r.signal(s, unix.SIGCONT)
		all.add(s.usual())
		r.stop(s).judge(s, all)
		s.checkStorm(r)
	}
	eachTool(t, with(sending(t, true), representatives(t)), test)
	eachPerf(t, representatives(t), test)
}

// checkStorm fails the test if no event of a storm was lost although the buffers are too small, or
// if a histogram or table, which needs no buffer, lost any.
func (s *subject) checkStorm(r *run) {
	s.Helper()
	if sends := sendsEvents(s.T, s.tool); sends && !s.fits && r.losses() == 0 || !sends && r.losses() > 0 {
		s.Errorf("%d rows, %d lost: %v", r.rows, r.losses(), r.summary)
	}
}

// TestSlowReader does not read the output while more events happen than the buffers and the pipe
// hold, and then reads a few KiB per millisecond.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	eachTool(t, representatives(t), func(s *subject) {
		slow := &slowly{stuck: make(chan struct{}), begin: make(chan struct{})}
		r := s.command().startReading(s, slow.reader).await(s)
		close(slow.stuck)
		all := s.storms()
		close(slow.begin)
		all.add(s.usual())
		r.stop(s).judge(s, all)
		s.checkStorm(r)
	})
}

// slowly is a reader that reads normally until stuck is closed, then blocks until begin is closed,
// and then reads slowly.
type slowly struct {
	from         io.Reader
	stuck, begin chan struct{}
}

func (s *slowly) reader(from io.Reader) io.Reader {
	s.from = from
	return s
}

func (s *slowly) Read(b []byte) (int, error) {
	select {
	case <-s.stuck:
		<-s.begin
		time.Sleep(time.Millisecond)
	default:
	}
	return s.from.Read(b)
}

// TestStuckReader never reads the output. After the first SIGINT the tool waits for the reader; a
// later SIGINT ends it.
func TestStuckReader(t *testing.T) {
	t.Parallel()
	eachTool(t, representatives(t), func(s *subject) {
		slow := &slowly{stuck: make(chan struct{}), begin: make(chan struct{})}
		r := s.command().startReading(s, slow.reader).await(s)
		h := heldBy(s, r.Process.Pid)
		close(slow.stuck)
		defer close(slow.begin)
		s.does(s.job, 10*s.n)
		r.signal(s, unix.SIGINT)
		ended := make(chan error)
		go func() { ended <- r.Wait() }()
		retry := time.NewTicker(50 * time.Millisecond)
		defer retry.Stop()
		for over := time.After(deadline); ; {
			select {
			case <-ended:
				h.checkGone(s)
				return
			case <-retry.C:
				r.signal(s, unix.SIGINT)
			case <-over:
				s.Fatal("the tool does not exit")
			}
		}
	})
}

// TestStorm reads at full speed while more events happen than the buffers hold. TestSuspended does
// the same with the tools that send events, and loses some of them.
func TestStorm(t *testing.T) {
	test := func(s *subject) {
		r := s.command().start(s).await(s)
		all := s.storms()
		r.stop(s).judge(s, all)
	}
	eachTool(t, with(sending(t, false), representatives(t)), test)
	eachPerf(t, representatives(t), test)
}

// TestOutputFull writes to a full device.
func TestOutputFull(t *testing.T) {
	eachTool(t, representatives(t), func(s *subject) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			s.Skip(err)
		}
		defer full.Close()
		r := s.command()
		close(r.done)
		r.Stdout = full
		if err := r.Start(); err != nil {
			s.Fatal(err)
		}
		r.checkFailure(s, 1, "no space left on device")
	})
}

// TestOutputClosed starts the tool without standard output. Rows must not be written to another
// file, map or program that got descriptor 1.
func TestOutputClosed(t *testing.T) {
	eachTool(t, representatives(t), func(s *subject) {
		r := s.command("--duration", "300ms").within("exec >&-").start(s)
		if state := r.end(s); state.ExitCode() != 0 && state.ExitCode() != 1 || r.rows > 0 {
			s.Errorf("%v, %d rows: %s", state, r.rows, &r.stderr)
		}
	})
}
