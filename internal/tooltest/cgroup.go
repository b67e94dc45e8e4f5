package tooltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Cgroup creates a cgroup in the hierarchy ("cgroup2", or a v1 controller) and returns its path. It
// skips the test if the hierarchy is not mounted or not writable.
func Cgroup(t testing.TB, hierarchy, name string) string {
	t.Helper()
	mount := cgroupMount(t, hierarchy)
	dir := filepath.Join(mount, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skipf("cannot create a cgroup in hierarchy %s: %v", hierarchy, err)
	}
	t.Cleanup(func() {
		for d := dir; d != mount; d = filepath.Dir(d) {
			os.Remove(d)
		}
	})
	return dir
}

func cgroupMount(t testing.TB, hierarchy string) string {
	t.Helper()
	mount := findHierarchy(t, hierarchy)
	if mount == "" {
		t.Skipf("hierarchy %s is not mounted", hierarchy)
	}
	return mount
}

// findHierarchy returns the mount point of a hierarchy, "" if it is not mounted.
func findHierarchy(t testing.TB, hierarchy string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if f[2] == hierarchy || f[2] == "cgroup" && strings.Contains(","+f[3]+",", ","+hierarchy+",") {
			return f[1]
		}
	}
	return ""
}

// InCgroup returns a command that runs in the cgroup.
func InCgroup(dir string, argv ...string) *exec.Cmd {
	script := `echo $$ >"$0"/cgroup.procs && exec "$@"`
	return exec.Command("/bin/sh", append([]string{"-c", script, dir}, argv...)...)
}
