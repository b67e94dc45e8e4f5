package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog reads what the kernel logs, from its opening on.
type kernelLog struct{ fd int }

func openKernelLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open kernel's log: %w", err)
	}
	if _, err := unix.Seek(fd, 0, os.SEEK_END); err != nil {
		return nil, fmt.Errorf("open kernel's log: %w", err)
	}
	return &kernelLog{fd}, nil
}

// complaints returns what was logged since the last call and tells of a mistake in the
// kernel, or of ours in it.
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

// isComplaint leaves out lockups: on a busy host an emulated CPU may well stand still.
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
