package system

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// CPUs returns how many CPUs a process has used on average since it started, 0 if it has exited. The
// times in /proc/PID/stat have a resolution of 10 ms.
func CPUs(root string, pid uint32) float64 {
	const hz = 100 // USER_HZ, the unit of these times on all architectures
	text, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("proc/%d/stat", pid)))
	if err != nil {
		return 0
	}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	used, start, ok := parseTimes(text)
	if !ok {
		return 0
	}
	age := float64(now.Nano())/1e9*hz - float64(start)
	return float64(used) / max(age, 1)
}

// parseTimes returns the CPU time and the start time in /proc/PID/stat. The second field is the name in
// parentheses, which can contain any byte.
func parseTimes(stat []byte) (used, start uint64, ok bool) {
	const user, system, started = 14 - 3, 15 - 3, 22 - 3 // fields, counted from the third
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= started {
		return 0, 0, false
	}
	var times [3]uint64
	for i, field := range []int{user, system, started} {
		n, err := strconv.ParseUint(string(fields[field]), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		times[i] = n
	}
	return times[0] + times[1], times[2], true
}
