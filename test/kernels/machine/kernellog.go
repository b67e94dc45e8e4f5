package main

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog reads the messages that the kernel logs after it is opened.
type kernelLog struct{ fd int }

func openKernelLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open kernel log: %w", err)
	}
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("open kernel log: %w", err)
	}
	return &kernelLog{fd}, nil
}

// complaints returns the warnings and oopses that were logged since the last call.
func (l *kernelLog) complaints() string {
	var all []string
	buf := make([]byte, 8<<10) // a read is one record
	for {
		n, err := unix.Read(l.fd, buf)
		if err == unix.EPIPE { // records were overwritten before they were read
			continue
		}
		if err != nil || n == 0 {
			return strings.Join(all, "; ")
		}
		_, text, _ := strings.Cut(string(buf[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if isComplaint(text) {
			all = append(all, text)
		}
	}
}

// isComplaint ignores lockups: on a busy host an emulated CPU can make no progress for a while.
func isComplaint(text string) bool {
	if strings.Contains(text, "lockup") {
		return false
	}
	for _, mark := range []string{"WARNING: ", "BUG: ", "Oops", "general protection fault"} {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}
