package ring

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// parked is a [ringbuf.Reader] that waits in the scheduler of the Go runtime instead of in a system
// call, and makes no system call if the buffer is empty. A system call wakes a thread of the runtime
// (sysmon), which then checks every 20 us to 10 ms whether another goroutine needs the processor of the
// caller. That took more than half of the CPU time of tools with few events.
type parked struct {
	*ringbuf.Reader
	file     *os.File // the ring buffer, for the runtime's poller
	conn     syscall.RawConn
	deadline time.Time
	flushed  atomic.Bool
	closed   atomic.Bool
	mu       sync.Mutex // held while the reader's memory is accessed
}

// expired is a deadline in the past: the reader does not wait.
var expired = time.Unix(1, 0)

func newParked(events *ebpf.Map) (*parked, error) {
	r, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("create ring buffer reader: %w", err)
	}
	r.SetDeadline(expired)
	p := &parked{Reader: r}
	if p.file, err = pollable(events.FD()); err == nil {
		p.conn, err = p.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for ring buffer: %w", err), p.Close())
	}
	return p, nil
}

// pollable returns a file for the runtime's poller.
func pollable(fd int) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "ring buffer"), nil
}

func (p *parked) SetDeadline(t time.Time) { p.deadline = t }

// ReadInto is like that of [ringbuf.Reader].
func (p *parked) ReadInto(record *ringbuf.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed.Load() {
		// The reader has seen whether more records remain. To look again costs as much as a record.
		if record.Remaining > 0 || p.hasData() {
			if err := p.Reader.ReadInto(record); !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			record.Remaining = 0
		}
		if !time.Now().Before(p.deadline) {
			return os.ErrDeadlineExceeded
		}
		if err := p.wait(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !p.closed.Load() {
			return fmt.Errorf("wait for ring buffer: %w", err)
		}
	}
	return os.ErrClosed
}

// hasData reports whether the reader returns a record, or ErrFlushed.
func (p *parked) hasData() bool { return p.AvailableBytes() > 0 || p.flushed.Load() }

// wait waits until the ring buffer has data, the deadline, or Flush.
func (p *parked) wait() error {
	if err := p.file.SetReadDeadline(p.deadline); err != nil {
		return err
	}
	waited := false
	// The runtime has forgotten earlier data when it calls the function: look for it again.
	return p.conn.Read(func(uintptr) bool {
		done := waited || p.hasData()
		waited = true
		return done
	})
}

func (p *parked) Flush() error {
	err := p.Reader.Flush()
	p.flushed.Store(true)
	return errors.Join(err, p.file.SetReadDeadline(expired))
}

func (p *parked) Close() error {
	p.closed.Store(true)
	var err error
	if p.file != nil {
		err = p.file.Close() // ends wait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.Reader.Close(), err)
}
