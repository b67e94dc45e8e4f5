package tooltest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CPUCgroup creates a cgroup whose tasks can use the quota of CPU time per period, and returns its
// directory and its path.
func CPUCgroup(t testing.TB, name string, quota, period time.Duration) (dir, path string) {
	t.Helper()
	Root(t)
	write := func(dir, file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
	if findHierarchy(t, "cpu") != "" {
		dir = Cgroup(t, "cpu", name)
		for file, us := range map[string]int64{"cpu.cfs_period_us": period.Microseconds(), "cpu.cfs_quota_us": quota.Microseconds()} {
			if err := write(dir, file, fmt.Sprint(us)); err != nil {
				t.Fatal(err)
			}
		}
		return dir, "/" + name
	}
	dir = Cgroup(t, "cgroup2", name)
	if err := write(filepath.Dir(dir), "cgroup.subtree_control", "+cpu"); err != nil {
		t.Skipf("no cgroup has the cpu controller: %v", err)
	}
	if err := write(dir, "cpu.max", fmt.Sprint(quota.Microseconds(), " ", period.Microseconds())); err != nil {
		t.Fatal(err)
	}
	return dir, "/" + name
}
