package tooltest

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Uring is an io_uring with one entry, set up with system calls.
type Uring struct {
	t    testing.TB
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

// UringSQE mirrors the first part of struct io_uring_sqe.
type UringSQE struct {
	Opcode, Flags uint8
	IOPrio        uint16
	FD            int32
	Off, Addr     uint64
	Len, OpFlags  uint32
	UserData      uint64
	_             [24]byte
}

const (
	uringGetEvents  = 1
	uringOffSQEs    = 0x10000000
	uringSingleMmap = 1
)

// NewUring skips the test if io_uring is not available.
func NewUring(t testing.TB) *Uring {
	t.Helper()
	u := &Uring{t: t}
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
	u.sqes = u.mmap(uringOffSQEs, int(unsafe.Sizeof(UringSQE{})*uintptr(u.p.sqEntries)))
	return u
}

func (u *Uring) mmap(offset int64, size int) []byte {
	b, err := unix.Mmap(u.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { unix.Munmap(b) })
	return b
}

func (u *Uring) word(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.ring[off])) }

// Do submits one request, waits for it, and returns its result.
func (u *Uring) Do(sqe UringSQE) int32 {
	*(*UringSQE)(unsafe.Pointer(&u.sqes[0])) = sqe
	*u.word(u.p.sqOff.array) = 0
	atomic.AddUint32(u.word(u.p.sqOff.tail), 1)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), 1, 1, uringGetEvents, 0, 0); errno != 0 {
		u.t.Error(errno)
	}
	head := atomic.AddUint32(u.word(u.p.cqOff.head), 1) - 1
	cqe := u.p.cqOff.cqes + 16*(head&(u.p.cqEntries-1))
	return int32(*u.word(cqe + 8))
}
