package system

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

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

// TestMountTableChanges moves a file system to other mount points.
func TestMountTableChanges(t *testing.T) {
	if uid := os.Geteuid(); uid != 0 {
		t.Skipf("mounting needs root, not UID %d", uid)
	}
	runtime.LockOSThread() // never unlocked, so the thread with its mount namespace exits
	check(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	check(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	first, second := t.TempDir(), t.TempDir()
	check(t, unix.Mount("none", first, "tmpfs", 0, ""))
	var st unix.Stat_t
	check(t, unix.Stat(first, &st))
	dev := unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)
	const mountinfo = "/proc/thread-self/mountinfo"
	table := &MountTable{path: mountinfo}
	expect := func(want string) {
		t.Helper()
		if got, ok := table.Path(dev, "/x"); got != want || ok != (want != "") {
			t.Errorf("path %q, %t, want %q", got, ok, want)
		}
	}
	expect(first + "/x")
	// Go's runtime must not poll the file: it would take the changes.
	if err := table.file.SetReadDeadline(time.Time{}); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("deadline of the file: %v, want %v", err, os.ErrNoDeadline)
	}
	for range 20 {
		check(t, unix.Mount(first, second, "", unix.MS_BIND, ""))
		check(t, unix.Unmount(first, unix.MNT_DETACH))
		expect(second + "/x")
		first, second = second, first
	}
	check(t, unix.Unmount(first, unix.MNT_DETACH))
	expect("")
	check(t, unix.Mount("none", first, "tmpfs", 0, ""))
	defer unix.Unmount(first, unix.MNT_DETACH)
	check(t, unix.Stat(first, &st))
	dev = unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)
	expect(first + "/x")

	// What cannot be read has no paths, until it can.
	table.path = os.DevNull + "/none"
	check(t, unix.Mount(first, second, "", unix.MS_BIND, ""))
	defer unix.Unmount(second, unix.MNT_DETACH)
	expect("")
	table.path = mountinfo
	expect(first + "/x")
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
