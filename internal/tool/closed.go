package tool

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// IsClosed reports whether writing failed because the reader of the output has closed the pipe,
// which is a regular end of a tool or verb.
func IsClosed(err error) bool { return errors.Is(err, unix.EPIPE) }

// untilClosed returns a context that is done when the reader of out has closed it, so that a tool
// which waits for an event does not outlive its pipe. watch begins to wait for that. It is called when
// all hooks are attached: the system call keeps the Go runtime from using one of the CPUs for up to
// 10 ms, a third of the time that a start takes.
func untilClosed(ctx context.Context, out io.Writer) (closed context.Context, watch func(), cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(ctx)
	f, ok := out.(*os.File)
	if !ok {
		return ctx, func() {}, cancel
	}
	fd := int32(f.Fd())
	return ctx, func() {
		go func() {
			for {
				fds := []unix.PollFd{{Fd: fd}}
				if _, err := unix.Poll(fds, -1); err == unix.EINTR {
					continue
				}
				cancel()
				return
			}
		}()
	}, cancel
}
