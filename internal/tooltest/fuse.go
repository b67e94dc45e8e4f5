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

// FUSE is a file system with one file, whose operations take as long as the test wants and
// end as it wants. Nothing of it is cached.
type FUSE struct {
	// File is the path of the file, Path what it is in the mount namespace.
	File, Path string

	t   testing.TB
	dev int
	mu  sync.Mutex
	how FUSEFunc
}

// FUSEFunc is asked for each operation by its name (read, write, open, fsync, getattr): how
// long it takes, what errno it fails with, and how many bytes are read or written of those
// that are asked for.
type FUSEFunc func(op string, size int) (time.Duration, unix.Errno, int)

// Set says how operations go from now on. Without it they take no time.
func (f *FUSE) Set(how FUSEFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.how = how
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
	fuseDirectIO       = 1    // FOPEN_DIRECT_IO: each read and write is an operation
	fuseAsyncDIO       = 1 << 15
	fuseFileSize       = 1 << 20
)

// FUSEFileName is the name of the one file.
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

// NewFUSE mounts one, and serves it until the test ends. It skips the test where the kernel has
// no FUSE.
func NewFUSE(t testing.TB, m *Mounts) *FUSE {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE can be had: %v", err)
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

// serve answers requests, each beside the others, until the file system is unmounted.
func (f *FUSE) serve() {
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		buf := make([]byte, 256<<10)
		n, err := unix.Read(f.dev, buf)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil { // ENODEV at the end
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

// do takes the time of an operation, and answers.
func (f *FUSE) do(h *fuseHeader, op string, size int, out func(n int) []byte) {
	var errno unix.Errno
	n := size
	f.mu.Lock()
	how := f.how
	f.mu.Unlock()
	if how != nil {
		var span time.Duration
		span, errno, n = how(op, size)
		time.Sleep(span)
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
	// ENOENT is for a request whose task was killed, EPERM or ENODEV for the end.
	if _, err := unix.Write(f.dev, b); err != nil && err != unix.ENOENT && err != unix.EPERM && err != unix.ENODEV {
		f.t.Errorf("answer %d of FUSE: %v", h.Opcode, err)
	}
}

// size is where struct fuse_read_in and fuse_write_in have it.
func size(in []byte) int { return int(binary.NativeEndian.Uint32(in[16:])) }

func words(all ...uint64) (b []byte) {
	for _, w := range all {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// initOut is struct fuse_init_out of version 7.23.
func initOut(in []byte) []byte {
	b := make([]byte, 64)
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	put(0, 7)
	put(4, 23)
	put(8, 0)
	put(12, fuseAsyncDIO&binary.NativeEndian.Uint32(in[12:]))
	put(20, 128<<10) // the most that is written at once
	put(24, 1)       // granularity of times, ns
	return b
}

func attr(node uint64) []byte {
	a := fuseAttr{Ino: node, Size: fuseFileSize, Mode: unix.S_IFREG | 0o644, Nlink: 1, BlockSize: 4096}
	if node == fuseRoot {
		a.Mode = unix.S_IFDIR | 0o755
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))
}
