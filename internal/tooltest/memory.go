package tooltest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// MemoryCgroup creates a cgroup with a memory limit and without swap, in either cgroup version. It
// returns its directory, and its path in the hierarchy.
func MemoryCgroup(t testing.TB, name string, limit int64) (dir, path string) {
	t.Helper()
	Root(t)
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	bytes := strconv.FormatInt(limit, 10)
	if findHierarchy(t, "memory") != "" {
		dir = Cgroup(t, "memory", name)
		write("memory.use_hierarchy", "1") // before 5.11 the limit otherwise ignores nested cgroups
		write("memory.limit_in_bytes", bytes)
		if _, err := os.Stat(filepath.Join(dir, "memory.memsw.limit_in_bytes")); err == nil {
			write("memory.memsw.limit_in_bytes", bytes)
		}
		return dir, "/" + name
	}
	dir = Cgroup(t, "cgroup2", name)
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
		t.Skipf("no cgroup has the memory controller: %v", err)
	}
	write("memory.max", bytes)
	if _, err := os.Stat(filepath.Join(dir, "memory.swap.max")); err == nil {
		write("memory.swap.max", "0")
	}
	return dir, "/" + name
}
