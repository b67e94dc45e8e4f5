package system

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessOf returns the PID of the process that a thread belongs to. If /proc hides an existing
// thread (hidepid=2), ProcessOf returns tid.
//
// Returns fs.ErrNotExist.
func ProcessOf(root string, tid uint32) (uint32, error) {
	status, err := readFile(filepath.Join(root, "proc", strconv.FormatUint(uint64(tid), 10), "status"), 64<<10)
	if err != nil {
		if !errors.Is(unix.Kill(int(tid), 0), unix.ESRCH) {
			return tid, nil
		}
		return 0, fmt.Errorf("find task %d: %w", tid, fs.ErrNotExist)
	}
	for line := range bytes.Lines(status) {
		if text, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			pid, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 32)
			if err != nil {
				return 0, fmt.Errorf("read process of task %d: %w", tid, err)
			}
			return uint32(pid), nil
		}
	}
	return 0, fmt.Errorf("read process of task %d: no Tgid in /proc/%d/status", tid, tid)
}

// OnlineCPUs returns the online CPUs as a list in the kernel's format: "0-3,6".
func OnlineCPUs(root string) (string, error) {
	text, err := readFile(filepath.Join(root, "sys/devices/system/cpu/online"), 64<<10)
	if err != nil {
		return "", fmt.Errorf("read online CPUs: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// InCPUList reports whether a list in the kernel's format contains the CPU.
func InCPUList(list string, cpu int64) bool {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err == nil && err2 == nil && from <= cpu && cpu <= to {
			return true
		}
	}
	return false
}
