package opensnoop

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// uring is an io_uring that opens files.
type uring struct{ *tooltest.Uring }

const uringOpOpenat = 18

func newUring(t *testing.T) *uring {
	t.Helper()
	return &uring{tooltest.NewUring(t)}
}

// openat submits one open, waits for it, and returns its result.
func (u *uring) openat(path string, flags, mode uint32) int32 {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -int32(unix.EINVAL)
	}
	defer runtime.KeepAlive(p)
	return u.Do(tooltest.UringSQE{
		Opcode: uringOpOpenat, FD: unix.AT_FDCWD, Addr: uint64(uintptr(unsafe.Pointer(p))), Len: mode, OpFlags: flags,
	})
}

// needUringHook skips the test if the tool cannot observe io_uring: the kernel lacks the tracepoint
// (before 6.0), or another hook is forced.
func needUringHook(t *testing.T, res *tooltest.Result) {
	t.Helper()
	hooks := res.Ready.List("hooks")
	if slices.ContainsFunc(hooks, func(h string) bool { return strings.HasPrefix(h, "uring: ") }) {
		return
	}
	if !tooltest.HasTracepoint(t, "io_uring_submit_req") || tooltest.Forced() {
		t.Skipf("no tracepoint io_uring_submit_req in this kernel, or another hook is forced: %v", hooks)
	}
	t.Fatalf("the kernel has the tracepoint io_uring_submit_req, the tool attached to %v", hooks)
}
