package tooltest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Loop is a private disk for a test: a loop device whose backing file is in memory. Only a kernel
// thread completes its I/O.
type Loop struct {
	Name, Path string
	Dev        *os.File
	Back       int // file descriptor of the backing file
}

// Sizes of a Loop and of its I/O, in bytes.
const (
	LoopSize  = 8 << 20
	BlockSize = 4096
	// Stride is the distance of blocks. It leaves gaps, so that requests are not merged.
	Stride = 2 * BlockSize
	// blocksEnd is the offset at which offsets of blocks wrap around: half of the disk, because f can
	// be a partition of that size.
	blocksEnd = LoopSize / 2
)

// NewLoop creates a Loop with the flags of LOOP_CONFIGURE. It skips the test if loop devices are
// not available.
func NewLoop(t testing.TB, flags uint32) *Loop {
	t.Helper()
	back, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(back) })
	if err := unix.Ftruncate(back, LoopSize); err != nil {
		t.Fatal(err)
	}
	return LoopOver(t, back, flags)
}

// LoopOver creates a loop device with the given backing file.
func LoopOver(t testing.TB, back int, flags uint32) *Loop {
	t.Helper()
	Root(t)
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("cannot create loop devices: %v", err)
	}
	defer unix.Close(control)
	for {
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		l := &Loop{Name: fmt.Sprintf("loop%d", n), Path: fmt.Sprintf("/dev/loop%d", n), Back: back}
		if l.Dev, err = os.OpenFile(l.Path, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
			t.Fatal(err)
		}
		config := unix.LoopConfig{Fd: uint32(back), Size: BlockSize, Info: unix.LoopInfo64{Flags: flags}}
		err = unix.IoctlLoopConfigure(int(l.Dev.Fd()), &config)
		if err == nil {
			t.Cleanup(l.close)
			return l
		}
		l.Dev.Close()
		if !errors.Is(err, unix.EBUSY) { // EBUSY: another process has configured it first
			t.Fatalf("configure %s: %v", l.Path, err)
		}
	}
}

func (l *Loop) close() {
	unix.IoctlRetInt(int(l.Dev.Fd()), unix.LOOP_CLR_FD)
	l.Dev.Close()
}

// Block returns a block of memory that is aligned for direct I/O.
func Block(t testing.TB) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// ReadBlocks reads n blocks one after another, each with a separate request.
func ReadBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	b := Block(t)
	for i := range n {
		if _, err := unix.Pread(int(f.Fd()), b, int64(i*Stride%blocksEnd)); err != nil {
			t.Fatal(err)
		}
	}
}

// WriteBlocks writes n blocks one after another, each with a separate request.
func WriteBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	b := Block(t)
	for i := range n {
		if _, err := unix.Pwrite(int(f.Fd()), b, int64(i*Stride%blocksEnd)); err != nil {
			t.Fatal(err)
		}
	}
}
