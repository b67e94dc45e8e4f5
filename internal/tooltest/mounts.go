package tooltest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Mounts is a mount namespace of a test's own: what is mounted nobody else sees, and it goes
// with the test.
type Mounts struct{ root string }

// NewMounts gives the test's goroutine a thread of its own until the test ends, in a new mount
// namespace.
func NewMounts(t testing.TB) *Mounts {
	t.Helper()
	Root(t)
	runtime.LockOSThread() // and is never unlocked, so the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	return &Mounts{fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), unix.Gettid())}
}

// At is by what path other threads find a path of the namespace.
func (m *Mounts) At(path string) string { return m.root + path }

// Mount mounts a file system at a new directory, whose path in the namespace it returns. The
// test's own goroutine calls it.
func (m *Mounts) Mount(t testing.TB, source, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// MountImage mounts a packed image of a file system, on a loop device. It skips the test where
// there are no loop devices, or no file systems of this kind.
func (m *Mounts) MountImage(t testing.TB, packed []byte, kind string) string {
	t.Helper()
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(kinds, []byte("\t"+kind+"\n")) {
		t.Skipf("this kernel has no %s", kind)
	}
	return m.Mount(t, LoopOver(t, unpack(t, packed), 0).Path, kind, "")
}

// unpack returns a file in memory.
func unpack(t testing.TB, packed []byte) int {
	t.Helper()
	back, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(back) })
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(back, image, 0); err != nil {
		t.Fatal(err)
	}
	return back
}
