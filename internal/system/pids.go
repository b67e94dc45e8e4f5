package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidLimit is the kernel's PID_MAX_LIMIT on 64-bit machines. All IDs of tasks are smaller.
const pidLimit = 4 << 20

// initialPIDNamespace is the target of /proc/PID/ns/pid for the initial PID namespace
// (PROC_PID_INIT_INO).
const initialPIDNamespace = "pid:[4026531836]"

// PIDMax returns a number that is greater than all IDs of tasks in the initial PID namespace:
// kernel.pid_max of that namespace. Since 6.14 (7863dcc72d0f) each namespace has its own setting.
// So in another namespace, or if the file cannot be read, PIDMax returns the kernel's limit.
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

// ErrOtherProc means that /proc belongs to another PID namespace than this process, so a PID in
// /proc is not the same process as in system calls.
var ErrOtherProc = errors.New("/proc belongs to another PID namespace than this process")

// PIDNamespace is the PID namespace of this process.
type PIDNamespace struct {
	Inode   uint32 // 0 if unknown
	Initial bool
	// OtherProc is set if /proc belongs to another PID namespace; see [ErrOtherProc].
	OtherProc bool
}

// ReadPIDNamespace returns the PID namespace of this process, and whether the /proc below root
// belongs to it.
//
// Returns ErrOtherProc, with OtherProc set and without the inode, if /proc lacks this process.
func ReadPIDNamespace(root string) (PIDNamespace, error) {
	self := filepath.Join(root, "proc/self")
	if _, err := os.Stat(self); errors.Is(err, os.ErrNotExist) {
		return PIDNamespace{OtherProc: true}, fmt.Errorf("find PID namespace: %w: %s does not exist", ErrOtherProc, self)
	}
	link, err := os.Readlink(filepath.Join(self, "ns/pid"))
	if errors.Is(err, os.ErrNotExist) { // without CONFIG_PID_NS
		return PIDNamespace{Initial: true}, nil
	}
	if err != nil {
		return PIDNamespace{}, fmt.Errorf("find PID namespace: %w", err)
	}
	var ns PIDNamespace
	if _, err := fmt.Sscanf(link, "pid:[%d]", &ns.Inode); err != nil {
		return PIDNamespace{}, fmt.Errorf("find PID namespace: read %q: %w", link, err)
	}
	ns.Initial = link == initialPIDNamespace
	status, err := readFile(filepath.Join(self, "status"), 64<<10)
	if err != nil {
		return ns, fmt.Errorf("find PID namespace of /proc: %w", err)
	}
	ns.OtherProc = namespacesOf(string(status)) > 1
	return ns, nil
}

// namespacesOf returns the number of PID namespaces from that of /proc down to that of the process:
// the number of IDs in the line NSpid of /proc/PID/status (since 4.1).
func namespacesOf(status string) int {
	for line := range strings.Lines(status) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(pids))
		}
	}
	return 1
}

// InitialPIDNamespace reports whether this process is in the initial PID namespace. It is false if
// /proc/self/ns/pid cannot be read.
func InitialPIDNamespace(root string) bool {
	ns, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid"))
	return err == nil && ns == initialPIDNamespace
}
