package system

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountTablePath(t *testing.T) {
	table := &MountTable{byDev: map[uint32][]Mount{
		1: {{Dev: 1, Dir: "/", Base: "/"}},
		2: {{Dev: 2, Dir: "/srv/part", Base: "/a/b"}, {Dev: 2, Dir: "/data", Base: "/a"}, {Dev: 2, Dir: "/again", Base: "/a"}},
	}}
	null, err := os.Open(os.DevNull) // reports no changes
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	table.file = null
	for _, c := range []struct {
		dev          uint32
		inside, want string
	}{
		{1, "/etc/passwd", "/etc/passwd"}, {2, "/a/b/file", "/data/b/file"}, {2, "/a", "/data"},
		{2, "/ab", ""}, {2, "/file", ""}, {3, "/file", ""},
	} {
		if got, ok := table.Path(c.dev, c.inside); got != c.want || ok != (c.want != "") {
			t.Errorf("path of %s on device %d = %q, %t, want %q", c.inside, c.dev, got, ok, c.want)
		}
	}
}

// TestMountTable finds a directory of this machine.
func TestMountTable(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat("/proc", &st); err != nil {
		t.Fatal(err)
	}
	dev := unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)
	if got, ok := new(MountTable).Path(dev, "/self"); !ok || filepath.Base(got) != "self" {
		t.Errorf("path of /self in /proc = %q, %t", got, ok)
	}
}

func TestKernelFunctions(t *testing.T) {
	got, err := KernelFunctions([]string{"schedule", "no_such_function"})
	if err != nil {
		t.Skipf("kernel symbols are unavailable: %v", err)
	}
	if _, ok := got["no_such_function"]; ok || os.Geteuid() == 0 && got["schedule"]>>63 != 1 {
		t.Errorf("addresses %x, want one of the kernel for schedule", got)
	}
	name, address, ok := kernelFunction([]byte("ffffffffc0001230 t btrfs_simple_end_io\t[btrfs]"))
	if string(name) != "btrfs_simple_end_io" || address != 0xffffffffc0001230 || !ok {
		t.Errorf("parsed %s at %x, %t", name, address, ok)
	}
	if _, _, ok := kernelFunction([]byte("ffffffffc0001230 d data")); ok {
		t.Error("data is taken for a function")
	}
}
