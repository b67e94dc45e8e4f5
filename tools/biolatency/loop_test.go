package biolatency

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// loop is a disk that is used only by one test.
type loop struct {
	name, path string
	dev        *os.File
	back       int // backing file
}

const (
	loopSize  = tooltest.LoopSize
	partSize  = loopSize / 2 // of the partition, if it is created
	blockSize = tooltest.BlockSize
	stride    = tooltest.Stride
)

func newLoop(t testing.TB, flags uint32) *loop {
	t.Helper()
	l := tooltest.NewLoop(t, flags)
	return &loop{l.Name, l.Path, l.Dev, l.Back}
}

// loopOver creates a loop device for a file.
func loopOver(t testing.TB, back int, flags uint32) *loop {
	t.Helper()
	l := tooltest.LoopOver(t, back, flags)
	return &loop{l.Name, l.Path, l.Dev, l.Back}
}

// scheduler sets the I/O scheduler of the disk.
func (l *loop) scheduler(t testing.TB, name string) {
	t.Helper()
	if !l.setScheduler(t, name) {
		t.Skipf("%s has no I/O scheduler %s", l.name, name)
	}
}

func (l *loop) setScheduler(t testing.TB, name string) bool {
	t.Helper()
	file := l.sys("queue/scheduler")
	choices, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(choices), name) {
		return false
	}
	if err := os.WriteFile(file, []byte(name), 0); err != nil {
		t.Fatal(err)
	}
	return true
}

// scheduled returns a disk with the I/O scheduler: a loop device, or null_blk if loop devices do
// not support schedulers (5.10).
func scheduled(t testing.TB, name string) *loop {
	t.Helper()
	l := newLoop(t, 0)
	if l.setScheduler(t, name) {
		return l
	}
	if _, err := os.Stat("/sys/block/nullb0"); err != nil {
		t.Skipf("%s has no I/O scheduler %s, and null_blk is unavailable: %v", l.name, name, err)
	}
	n := opened(t, "nullb0")
	n.scheduler(t, name)
	t.Cleanup(func() { n.setScheduler(t, "none") })
	return n
}

// account enables or disables ("0") I/O accounting of the disk. It is enabled again at the end, as
// the next user of the device expects.
func (l *loop) account(t testing.TB, on string) {
	t.Helper()
	if err := os.WriteFile(l.sys("queue/iostats"), []byte(on), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(l.sys("queue/iostats"), []byte("1"), 0) })
}

func (l *loop) sys(file string) string { return filepath.Join("/sys/block", l.name, file) }

func block(t testing.TB) []byte {
	t.Helper()
	return tooltest.Block(t)
}

// readBlocks reads n blocks in sequence, with one request each.
func readBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	tooltest.ReadBlocks(t, f, n)
}

func writeBlocks(t testing.TB, f *os.File, n int) {
	t.Helper()
	tooltest.WriteBlocks(t, f, n)
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
