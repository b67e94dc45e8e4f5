package system

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemory(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "MemTotal:        4014320 kB\nCached:              100 kB\nHugePages_Total:       7\nOdd: x kB\n"
	if err := os.WriteFile(filepath.Join(root, "proc/meminfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Memory(root)
	if len(m) != 2 || m["MemTotal"] != 4014320<<10 || m["Cached"] != 100<<10 {
		t.Errorf("Memory = %v, want MemTotal and Cached", m)
	}
	if m := Memory(t.TempDir()); len(m) != 0 {
		t.Errorf("Memory without /proc/meminfo = %v, want none", m)
	}
}
