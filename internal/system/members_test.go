package system

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestProcessesOfCgroup(t *testing.T) {
	root := t.TempDir()
	for pid, text := range map[string]string{
		"10": "0::/a\n", "11": "0::/a/b\n", "12": "0::/ab\n", "13": "4:memory,pids:/a\n0::/\n", "14": "0::/c\n", "self": "0::/a\n",
	} {
		dir := filepath.Join(root, "proc", pid)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, target := range map[uint32]Target{
		10: {Path: "/a"}, 13: {Path: "/a", Controller: "memory"}, 14: {Path: "/c"}, 0: {Path: "/none"}, 11: {Path: "/a/b"},
	} {
		got, err := target.Processes(root)
		if err != nil || want == 0 && len(got) > 0 || want != 0 && !slices.Contains(got, want) {
			t.Errorf("processes of %+v: %v, %v, want %d among them (0: none)", target, got, err, want)
		}
	}
	all := Target{Path: "/a"}
	if got, _ := all.Processes(root); !slices.Equal(got, []uint32{10, 11}) {
		t.Errorf("processes of /a: %v, want 10 and 11", got)
	}
	top := Target{Path: "/"}
	if got, _ := top.Processes(root); len(got) != 5 {
		t.Errorf("processes of the root cgroup: %v, want 5", got)
	}
}
