package tooltest

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RenameThread gives the calling goroutine a thread of its own with this name. The thread exits with
// the goroutine.
func RenameThread(t testing.TB, name string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&append([]byte(name), 0)[0])), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// UncachedDisk opens a loop device whose pages are not in the page cache, without read-ahead.
func UncachedDisk(t testing.TB) *os.File {
	t.Helper()
	l := NewLoop(t, 0)
	disk, err := os.OpenFile(l.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	for _, advice := range []int{unix.FADV_DONTNEED, unix.FADV_RANDOM} {
		if err := unix.Fadvise(int(disk.Fd()), 0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// TouchPages reads or writes the first n pages of a file, with unix.Pread or unix.Pwrite.
func TouchPages(t testing.TB, f *os.File, n int, call func(int, []byte, int64) (int, error)) {
	t.Helper()
	page := make([]byte, 4096)
	for i := range n {
		if _, err := call(int(f.Fd()), page, int64(i)*4096); err != nil {
			t.Error(err)
		}
	}
}

// Attached reports whether the tool has attached the hook.
func (r *Result) Attached(hook string) bool {
	return slices.ContainsFunc(r.Ready.List("hooks"), func(h string) bool { return strings.HasPrefix(h, hook+": ") })
}
