package system

import (
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
const membarrierGlobal = 1

// AwaitGracePeriod waits for an RCU grace period of the kernel: what ran as it was called,
// BPF programs too, is over when it returns.
func AwaitGracePeriod() {
	// With nohz_full it is not there (EINVAL).
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		time.Sleep(50 * time.Millisecond)
	}
}
