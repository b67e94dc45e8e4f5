package biolatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// loop is a disk of its own for a test: a loop device whose sectors are in memory. Its
// I/O is completed by a kernel thread, and by nothing else.
type loop struct {
	name, path string
	dev        *os.File
	back       int // the file with its sectors
}

const (
	loopSize  = 8 << 20
	partSize  = loopSize / 2 // of its partition, if it is made one
	blockSize = 4096
	// stride keeps blocks apart, so that they are not merged.
	stride = 2 * blockSize
)

func newLoop(t testing.TB, flags uint32) *loop {
	t.Helper()
	back, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(back) })
	if err := unix.Ftruncate(back, loopSize); err != nil {
		t.Fatal(err)
	}
	return loopOver(t, back, flags)
}

// loopOver makes a loop device of a file.
func loopOver(t testing.TB, back int, flags uint32) *loop {
	t.Helper()
	tooltest.Root(t)
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no loop devices can be had: %v", err)
	}
	defer unix.Close(control)
	for {
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		l := &loop{name: fmt.Sprintf("loop%d", n), path: fmt.Sprintf("/dev/loop%d", n), back: back}
		if l.dev, err = os.OpenFile(l.path, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
			t.Fatal(err)
		}
		config := unix.LoopConfig{Fd: uint32(back), Size: blockSize, Info: unix.LoopInfo64{Flags: flags}}
		err = unix.IoctlLoopConfigure(int(l.dev.Fd()), &config)
		if err == nil {
			t.Cleanup(l.close)
			return l
		}
		l.dev.Close()
		if !errors.Is(err, unix.EBUSY) { // else another was quicker
			t.Fatalf("make %s: %v", l.path, err)
		}
	}
}

func (l *loop) close() {
	unix.IoctlRetInt(int(l.dev.Fd()), unix.LOOP_CLR_FD)
	l.dev.Close()
}

// scheduler chooses the disk's I/O scheduler.
func (l *loop) scheduler(t testing.TB, name string) {
	t.Helper()
	if !l.setScheduler(t, name) {
		t.Skipf("%s has no I/O scheduler %s", l.name, name)
	}
}

func (l *loop) setScheduler(t testing.TB, name string) bool {
	t.Helper()
	file := l.sys("queue/scheduler")
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(known), name) {
		return false
	}
	if err := os.WriteFile(file, []byte(name), 0); err != nil {
		t.Fatal(err)
	}
	return true
}

// scheduled is a disk with the I/O scheduler: a loop device, or where these have none
// (5.10) null_blk's.
func scheduled(t testing.TB, name string) *loop {
	t.Helper()
	l := newLoop(t, 0)
	if l.setScheduler(t, name) {
		return l
	}
	if _, err := os.Stat("/sys/block/nullb0"); err != nil {
		t.Skipf("%s has no I/O scheduler %s, and there is no null_blk: %v", l.name, name, err)
	}
	n := opened(t, "nullb0")
	n.scheduler(t, name)
	t.Cleanup(func() { n.setScheduler(t, "none") })
	return n
}

// account has the kernel account the disk's I/O, or not ("0"). It is on in the end, as the
// next who takes the device expects.
func (l *loop) account(t testing.TB, on string) {
	t.Helper()
	if err := os.WriteFile(l.sys("queue/iostats"), []byte(on), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(l.sys("queue/iostats"), []byte("1"), 0) })
}

func (l *loop) sys(file string) string { return filepath.Join("/sys/block", l.name, file) }

// block is memory as direct I/O wants it.
func block(t testing.TB) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// readBlocks reads n blocks one after another, each by a request of its own.
func readBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	b := block(t)
	for i := range n {
		if _, err := unix.Pread(int(f.Fd()), b, int64(i*stride%partSize)); err != nil {
			t.Fatal(err)
		}
	}
}

func writeBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	b := block(t)
	for i := range n {
		if _, err := unix.Pwrite(int(f.Fd()), b, int64(i*stride%partSize)); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *loop) discard(t testing.TB, from, length uint64) {
	t.Helper()
	span := [2]uint64{from, length}
	ioctl(t, l.dev.Fd(), unix.BLKDISCARD, unsafe.Pointer(&span))
}

func ioctl(t testing.TB, fd uintptr, req uint, arg unsafe.Pointer) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(req), uintptr(arg)); errno != 0 {
		t.Fatalf("ioctl %#x: %v", req, errno)
	}
}
