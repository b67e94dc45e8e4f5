package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// mmOwner returns a thread by which the kernel knows the memory of a process: its first one,
// or another if that has ended. 0, for all processes, stays.
func mmOwner(pid uint32) int {
	if pid == 0 || hasMemory(int(pid), int(pid)) {
		return int(pid)
	}
	for _, tid := range threads(int(pid)) {
		if hasMemory(int(pid), tid) {
			return tid
		}
	}
	return int(pid)
}

// sayLeft tells of processes whose programs have ended before them, as the thread did that
// they were attached by.
func (u *user) sayLeft() {
	for pid, tid := range u.owners {
		if left := mmOwner(pid); !hasMemory(int(pid), tid) && hasMemory(int(pid), left) {
			u.objects.notify(fmt.Errorf("thread %d of process %d has ended: what other threads did since then was not seen", tid, pid))
		}
	}
}

func threads(pid int) (all []int) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, path := range paths {
		if tid, err := strconv.Atoi(filepath.Base(path)); err == nil {
			all = append(all, tid)
		}
	}
	return all
}

// hasMemory tells whether the thread runs or may run.
func hasMemory(pid, tid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	_, state, found := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '})
	return err == nil && found && state[0] != 'Z' && state[0] != 'X'
}
