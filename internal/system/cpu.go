package system

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the CPU time of this process, in user and kernel mode, 0 if it is unknown.
func ProcessCPU() time.Duration {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
