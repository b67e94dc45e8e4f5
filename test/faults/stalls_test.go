package faults

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// suspended is how long the tool is suspended at least.
const suspended = 10 * time.Second

// TestSuspended stops the tool (SIGSTOP) for ten seconds, in which more happens than the
// buffers hold, and lets it go on. What events had no room for is counted.
func TestSuspended(t *testing.T) {
	t.Parallel()
	eachBuffer(t, func(s *subject) {
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
	})
}

// checkStorm fails the test if nothing was lost of a storm that the buffers do not hold,
// or something of a histogram or table, which need none.
func (s *subject) checkStorm(r *run) {
	s.Helper()
	if sends := sendsEvents(s.T, s.tool); sends && !s.fits && r.losses() == 0 || !sends && r.losses() > 0 {
		s.Errorf("%d rows, %d lost: %v", r.rows, r.losses(), r.summary)
	}
}

// TestSlowReader has a reader that takes nothing while more happens than the buffers and
// the pipe hold, and then some KiB a millisecond.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	eachTool(t, func(s *subject) {
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

// slowly reads the first line at once, nothing more from when it is stuck until it may
// begin, and then slowly.
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

// TestStuckReader never reads. The first SIGINT asks the tool to end, which waits for
// the reader; the second ends it.
func TestStuckReader(t *testing.T) {
	t.Parallel()
	eachTool(t, func(s *subject) {
		slow := &slowly{stuck: make(chan struct{}), begin: make(chan struct{})}
		r := s.command().startReading(s, slow.reader).await(s)
		h := heldBy(s, r.Process.Pid)
		close(slow.stuck)
		defer close(slow.begin)
		s.does(s.job, 10*s.n)
		r.signal(s, unix.SIGINT)
		ended := make(chan error)
		go func() { ended <- r.Wait() }()
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for over := time.After(deadline); ; {
			select {
			case <-ended:
				h.checkGone(s)
				return
			case <-again.C:
				r.signal(s, unix.SIGINT)
			case <-over:
				s.Fatal("does not end")
			}
		}
	})
}

// TestStorm reads as fast as it can while more happens than the buffers hold.
func TestStorm(t *testing.T) {
	eachBuffer(t, func(s *subject) {
		r := s.command().start(s).await(s)
		all := s.storms()
		r.stop(s).judge(s, all)
	})
}

// TestOutputFull writes where there is no space.
func TestOutputFull(t *testing.T) {
	eachTool(t, func(s *subject) {
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
		r.says(s, 1, "no space left on device")
	})
}

// TestOutputClosed has no standard output at all: rows must not go where another
// descriptor, of a map or a program, has taken its number.
func TestOutputClosed(t *testing.T) {
	eachTool(t, func(s *subject) {
		r := s.command("--duration", "300ms").within("exec >&-").start(s)
		if state := r.end(s); state.ExitCode() != 0 && state.ExitCode() != 1 || r.rows > 0 {
			s.Errorf("%v, %d rows: %s", state, r.rows, &r.stderr)
		}
	})
}
