package system

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processes lists the processes that are currently in the cgroup or its descendants, from the /proc
// below root.
func (t *Target) Processes(root string) ([]uint32, error) {
	names, err := filepath.Glob(filepath.Join(root, "proc/[0-9]*/cgroup"))
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", t.Path, err)
	}
	var pids []uint32
	for _, name := range names {
		pid, err := strconv.ParseUint(filepath.Base(filepath.Dir(name)), 10, 32)
		if err != nil {
			continue
		}
		text, err := os.ReadFile(name)
		if err == nil && t.contains(string(text)) { // an error means that the process has exited
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// contains reports whether a process with the given /proc/PID/cgroup is in the cgroup or its
// descendants. Lines are "hierarchy:controllers:path", without controllers for cgroup v2.
func (t *Target) contains(lines string) bool {
	for line := range strings.Lines(lines) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 || !slices.Contains(strings.Split(fields[1], ","), t.Controller) {
			continue
		}
		return t.Covers(fields[2])
	}
	return false
}
