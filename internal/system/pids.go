package system

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidLimit is the kernel's PID_MAX_LIMIT on 64-bit machines: no id is as large.
const pidLimit = 4 << 20

// initialPIDNamespace is the inode number of the machine's own PID namespace
// (PROC_PID_INIT_INO).
const initialPIDNamespace = "pid:[4026531836]"

// PIDMax returns a number that no id of a task reaches, as the kernel itself counts
// them: kernel.pid_max. That is a namespace's own setting since 6.14 (7863dcc72d0f),
// so inside of one, or where it cannot be read, it is the greatest there may be.
func PIDMax(root string) uint32 {
	if !InitialPIDNamespace(root) {
		return pidLimit
	}
	text, err := readFile(filepath.Join(root, "proc/sys/kernel/pid_max"), 64)
	if err != nil {
		return pidLimit
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || n == 0 || n > pidLimit {
		return pidLimit
	}
	return uint32(n)
}

// InitialPIDNamespace reports whether this process is in the machine's own PID namespace,
// so far as it can be read.
func InitialPIDNamespace(root string) bool {
	ns, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid"))
	return err == nil && ns == initialPIDNamespace
}
