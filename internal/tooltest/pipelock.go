package tooltest

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FaultPage is a page of memory whose first access blocks until it is filled (userfaultfd). A system
// call that reads or writes it stays where it is, with the locks that it holds.
type FaultPage struct {
	Memory []byte
	uffd   int
}

// Definitions for userfaultfd(2), from linux/userfaultfd.h.
const (
	uffdAPI          = 0xaa
	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
	uffdioZeroPage   = 0xc020aa04
	uffdMissing      = 1
	uffdMessageBytes = 32
	uffdAddress      = 16 // offset of the faulting address in a message
)

// NewFaultPage returns a page, which exists until the test ends. It skips the test if the kernel has
// no userfaultfd.
func NewFaultPage(t testing.TB) *FaultPage {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno == unix.ENOSYS {
		t.Skip("this kernel has no userfaultfd")
	}
	if errno != 0 {
		t.Fatalf("create userfaultfd: %v", errno)
	}
	p := &FaultPage{uffd: int(fd)}
	t.Cleanup(func() { unix.Close(p.uffd) })
	var err error
	p.Memory, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatalf("map memory: %v", err)
	}
	t.Cleanup(func() { unix.Munmap(p.Memory) })
	p.ioctl(t, uffdioAPI, [4]uint64{uffdAPI})
	p.ioctl(t, uffdioRegister, [4]uint64{p.start(), uint64(len(p.Memory)), uffdMissing})
	return p
}

func (p *FaultPage) start() uint64 { return uint64(uintptr(unsafe.Pointer(&p.Memory[0]))) }

func (p *FaultPage) ioctl(t testing.TB, request uintptr, arg [4]uint64) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.uffd), request, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		t.Fatalf("ioctl %#x of userfaultfd: %v", request, errno)
	}
}

// Await returns when a thread is blocked at the page.
func (p *FaultPage) Await(t testing.TB) {
	t.Helper()
	var message [uffdMessageBytes]byte
	if _, err := unix.Read(p.uffd, message[:]); err != nil {
		t.Fatalf("read userfaultfd: %v", err)
	}
	if at := binary.NativeEndian.Uint64(message[uffdAddress:]); at != p.start() {
		t.Fatalf("fault at %#x, want %#x", at, p.start())
	}
}

// Fill fills the page with zeros, so that blocked threads continue.
func (p *FaultPage) Fill(t testing.TB) {
	t.Helper()
	p.ioctl(t, uffdioZeroPage, [4]uint64{p.start(), uint64(len(p.Memory))})
}

// PipeWait is one wait for the mutex of a pipe.
type PipeWait struct {
	HolderTID, WaiterTID int
	// AtLeast is a time in which the waiter waited all the time.
	AtLeast time.Duration
}

// WaitForPipe makes a thread of this process wait once for the mutex of a pipe, which another thread
// holds while it writes from a page that is not present.
func WaitForPipe(t testing.TB) PipeWait {
	t.Helper()
	return WaitForPipeIn(t, writeByte)
}

// HolderFunctionOfPipe is the end of the name of the function in which a thread holds the mutex of the pipe.
const HolderFunctionOfPipe = ".holdPipe"

// holdPipe is writeByte under a name of its own, for the stack of the thread that holds the mutex.
//
//go:noinline
func holdPipe(fd int, b *byte) error { return writeByte(fd, b) }

// writeByte writes a byte with write(2).
func writeByte(fd int, b *byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(b)), 1); errno != 0 {
		return errno
	}
	return nil
}

// WaitForPipeIn is WaitForPipe with a waiter that writes a byte to the pipe by the function.
func WaitForPipeIn(t testing.TB, wait func(fd int, b *byte) error) PipeWait {
	t.Helper()
	page := NewFaultPage(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatalf("create pipe: %v", err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, done := make(chan int), make(chan error, 2)
	write := func(b *byte, call func(fd int, b *byte) error) {
		runtime.LockOSThread() // the thread ends with the goroutine
		tid <- unix.Gettid()
		done <- call(pipe[1], b)
	}
	go write(&page.Memory[0], holdPipe)
	w := PipeWait{HolderTID: <-tid}
	page.Await(t)
	go write(new(byte), wait)
	w.WaiterTID = <-tid
	awaitState(t, w.WaiterTID, "D")
	begin := time.Now()
	time.Sleep(10 * time.Millisecond)
	w.AtLeast = time.Since(begin)
	page.Fill(t)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatalf("write to pipe: %v", err)
		}
	}
	return w
}

// awaitState returns when the thread of this process is in the state of /proc/PID/stat.
func awaitState(t testing.TB, tid int, want string) {
	t.Helper()
	state := ""
	for end := time.Now().Add(deadline); state != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("thread %d is in state %q, want %q", tid, state, want)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		state, _, _ = strings.Cut(after, " ")
	}
}
