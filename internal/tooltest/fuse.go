package tooltest

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FUSE is a file system with one file. The test determines the duration and the result of its
// operations. The kernel caches nothing.
type FUSE struct {
	// File is the path of the file for other threads, Path its path in the mount namespace.
	File, Path string

	t       testing.TB
	dev     int
	mu      sync.Mutex
	operate FUSEFunc
}

// FUSEFunc is called for each operation with its name (read, write, open, fsync, getattr) and the
// requested number of bytes. It returns the duration, the errno (0 for success), and the number of
// bytes that are read or written.
type FUSEFunc func(op string, size int) (time.Duration, unix.Errno, int)

// Set sets the function for all following operations. Without one, operations succeed immediately.
func (f *FUSE) Set(operate FUSEFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operate = operate
}

// Operations of linux/fuse.h.
const (
	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseWrite   = 16
	fuseRelease = 18
	fuseFsync   = 20
	fuseFlush   = 25
	fuseInit    = 26
)

const (
	fuseRoot, fuseFile = 1, 2 // inodes
	fuseDirectIO       = 1    // FOPEN_DIRECT_IO: each read and write becomes an operation
	fuseAsyncDIO       = 1 << 15
	fuseFileSize       = 1 << 20
)

// FUSEFileName is the name of the file.
const FUSEFileName = "a file"

type fuseHeader struct {
	Len, Opcode  uint32
	Unique, Node uint64
	UID, GID     uint32
	PID          uint32
	_            uint32
}

type fuseAttr struct {
	Ino, Size, Blocks   uint64
	Times               [3]uint64
	Nsecs               [3]uint32
	Mode, Nlink         uint32
	UID, GID, Rdev      uint32
	BlockSize, Reserved uint32
}

// NewFUSE mounts a FUSE and serves it until the test ends. It skips the test if the kernel does not
// support FUSE.
func NewFUSE(t testing.TB, m *Mounts) *FUSE {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("cannot use FUSE: %v", err)
	}
	f := &FUSE{t: t, dev: dev}
	var served sync.WaitGroup
	t.Cleanup(func() {
		served.Wait()
		unix.Close(dev)
	})
	dir := m.Mount(t, "corescope", "fuse", fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev))
	f.Path = filepath.Join(dir, FUSEFileName)
	f.File = m.At(f.Path)
	served.Go(f.serve)
	return f
}

// serve answers requests concurrently until the file system is unmounted.
func (f *FUSE) serve() {
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		buf := make([]byte, 256<<10)
		n, err := unix.Read(f.dev, buf)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil { // ENODEV after the unmount
			return
		}
		answers.Go(func() { f.answer(buf[:n]) })
	}
}

func (f *FUSE) answer(b []byte) {
	h := *(*fuseHeader)(unsafe.Pointer(&b[0]))
	in := b[unsafe.Sizeof(h):]
	switch h.Opcode {
	case fuseForget:
		return
	case fuseInit:
		f.reply(&h, 0, initOut(in))
	case fuseLookup:
		if h.Node != fuseRoot || string(in[:len(in)-1]) != FUSEFileName {
			f.reply(&h, unix.ENOENT, nil)
			return
		}
		f.reply(&h, 0, append(words(fuseFile, 0, 0, 0, 0), attr(fuseFile)...))
	case fuseGetattr:
		f.do(&h, "getattr", 0, func(int) []byte { return append(words(0, 0), attr(h.Node)...) })
	case fuseOpen:
		f.do(&h, "open", 0, func(int) []byte { return words(0, fuseDirectIO) })
	case fuseRead:
		f.do(&h, "read", size(in), func(n int) []byte { return make([]byte, n) })
	case fuseWrite:
		f.do(&h, "write", size(in), func(n int) []byte { return words(uint64(n)) })
	case fuseFsync:
		f.do(&h, "fsync", 0, func(int) []byte { return nil })
	case fuseRelease, fuseFlush:
		f.reply(&h, 0, nil)
	default:
		f.reply(&h, unix.ENOSYS, nil)
	}
}

// do calls the test's function, waits for the duration of the operation, and replies.
func (f *FUSE) do(h *fuseHeader, op string, size int, out func(n int) []byte) {
	var errno unix.Errno
	n := size
	f.mu.Lock()
	operate := f.operate
	f.mu.Unlock()
	if operate != nil {
		var duration time.Duration
		duration, errno, n = operate(op, size)
		time.Sleep(duration)
	}
	if errno != 0 {
		f.reply(h, errno, nil)
		return
	}
	f.reply(h, 0, out(n))
}

func (f *FUSE) reply(h *fuseHeader, errno unix.Errno, out []byte) {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(out)))
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	b = append(binary.NativeEndian.AppendUint64(b, h.Unique), out...)
	// ENOENT means that the request's task was killed, EPERM or ENODEV that the file system is
	// unmounted.
	if _, err := unix.Write(f.dev, b); err != nil && err != unix.ENOENT && err != unix.EPERM && err != unix.ENODEV {
		f.t.Errorf("reply to FUSE operation %d: %v", h.Opcode, err)
	}
}

// size returns the member size of struct fuse_read_in or fuse_write_in.
func size(in []byte) int { return int(binary.NativeEndian.Uint32(in[16:])) }

func words(all ...uint64) (b []byte) {
	for _, w := range all {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// initOut returns a struct fuse_init_out of version 7.23.
func initOut(in []byte) []byte {
	b := make([]byte, 64)
	put := func(offset int, v uint32) { binary.NativeEndian.PutUint32(b[offset:], v) }
	put(0, 7)
	put(4, 23)
	put(8, 0)
	put(12, fuseAsyncDIO&binary.NativeEndian.Uint32(in[12:]))
	put(20, 128<<10) // max_write
	put(24, 1)       // time_gran, ns
	return b
}

func attr(node uint64) []byte {
	a := fuseAttr{Ino: node, Size: fuseFileSize, Mode: unix.S_IFREG | 0o644, Nlink: 1, BlockSize: 4096}
	if node == fuseRoot {
		a.Mode = unix.S_IFDIR | 0o755
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))
}
