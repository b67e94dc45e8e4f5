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
// which waits for an event does not outlive its pipe.
func untilClosed(ctx context.Context, out io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if f, ok := out.(*os.File); ok {
		fd := int32(f.Fd())
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
	}
	return ctx, cancel
}
