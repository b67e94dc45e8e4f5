package probe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// memoryOwner returns a thread through which the kernel finds the memory of a process: the first
// thread, or another one if that has exited. It returns 0, which stands for all processes,
// unchanged.
func memoryOwner(pid uint32) int {
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

// notifyEnded reports processes that are no longer traced although they still run, because the
// thread that their programs were attached for has exited.
func (u *user) notifyEnded() {
	for pid, tid := range u.owners {
		if other := memoryOwner(pid); !hasMemory(int(pid), tid) && hasMemory(int(pid), other) {
			u.objects.notify(fmt.Errorf("thread %d of process %d exited: other threads of the process were not traced since then", tid, pid))
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

// hasMemory reports whether the thread exists and is neither dead nor a zombie.
func hasMemory(pid, tid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	_, state, found := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '})
	return err == nil && found && state[0] != 'Z' && state[0] != 'X'
}
