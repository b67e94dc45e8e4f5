package opensnoop

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// uring is an io_uring with one entry, set up with system calls.
type uring struct {
	t    *testing.T
	fd   int
	ring []byte
	sqes []byte
	p    uringParams
}

// uringParams mirrors struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sqOff                                                                  struct{ head, tail, ringMask, ringEntries, flags, dropped, array, resv1, userAddr1, userAddr2 uint32 }
	cqOff                                                                  struct{ head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1, userAddr1, userAddr2 uint32 }
}

// uringSQE mirrors the part of struct io_uring_sqe that openat needs.
type uringSQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, open     uint32
	userData      uint64
	_             [24]byte
}

const (
	uringOpOpenat   = 18
	uringGetEvents  = 1
	uringOffSQEs    = 0x10000000
	uringSingleMmap = 1
)

func newUring(t *testing.T) *uring {
	t.Helper()
	u := &uring{t: t}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&u.p)), 0)
	if errno != 0 {
		t.Skipf("io_uring is unavailable: %v", errno)
	}
	u.fd = int(fd)
	t.Cleanup(func() { unix.Close(u.fd) })
	if u.p.features&uringSingleMmap == 0 {
		t.Skip("io_uring of this kernel is older than 5.4")
	}
	size := max(u.p.sqOff.array+4*u.p.sqEntries, u.p.cqOff.cqes+16*u.p.cqEntries)
	u.ring = u.mmap(0, int(size))
	u.sqes = u.mmap(uringOffSQEs, int(unsafe.Sizeof(uringSQE{})*uintptr(u.p.sqEntries)))
	return u
}

func (u *uring) mmap(offset int64, size int) []byte {
	b, err := unix.Mmap(u.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { unix.Munmap(b) })
	return b
}

func (u *uring) word(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.ring[off])) }

// openat submits one open, waits for it, and returns its result.
func (u *uring) openat(path string, flags, mode uint32) int32 {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		u.t.Fatal(err)
	}
	*(*uringSQE)(unsafe.Pointer(&u.sqes[0])) = uringSQE{
		opcode: uringOpOpenat, fd: unix.AT_FDCWD, addr: uint64(uintptr(unsafe.Pointer(p))), len: mode, open: flags,
	}
	*u.word(u.p.sqOff.array) = 0
	atomic.AddUint32(u.word(u.p.sqOff.tail), 1)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), 1, 1, uringGetEvents, 0, 0); errno != 0 {
		u.t.Error(errno)
	}
	runtime.KeepAlive(p)
	head := atomic.AddUint32(u.word(u.p.cqOff.head), 1) - 1
	cqe := u.p.cqOff.cqes + 16*(head&(u.p.cqEntries-1))
	return int32(*u.word(cqe + 8))
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
