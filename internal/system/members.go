package system

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processes lists the processes that are in the cgroup or below it now, by the /proc below root.
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
		if err == nil && t.has(string(text)) { // else it has ended
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// has tells whether a process is in the cgroup, by its lines "hierarchy:controllers:path", of which the last has no
// controllers where it is of cgroup v2.
func (t *Target) has(lines string) bool {
	for line := range strings.Lines(lines) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 || !slices.Contains(strings.Split(fields[1], ","), t.Controller) {
			continue
		}
		rest, ok := strings.CutPrefix(fields[2], strings.TrimSuffix(t.Path, "/"))
		return ok && (rest == "" || rest[0] == '/')
	}
	return false
}
