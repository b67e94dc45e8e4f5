package system

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capData is the data of capget and capset: the lower and the upper 32 bits of each set.
type capData [2]unix.CapUserData

func newCapData(effective, permitted Capabilities) *capData {
	return &capData{
		{Effective: uint32(effective), Permitted: uint32(permitted)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32)},
	}
}

func (d *capData) effective() Capabilities {
	return Capabilities(d[1].Effective)<<32 | Capabilities(d[0].Effective)
}

func (d *capData) permitted() Capabilities {
	return Capabilities(d[1].Permitted)<<32 | Capabilities(d[0].Permitted)
}

func capHeader() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

func getCapabilities() (*capData, error) {
	var d capData
	if err := unix.Capget(capHeader(), &d[0]); err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	return &d, nil
}

// Effective returns the effective capabilities of the calling thread. Except in [Try], all threads
// have the same.
func Effective() (Capabilities, error) {
	d, err := getCapabilities()
	if err != nil {
		return 0, err
	}
	return d.effective(), nil
}

// Confine permanently drops all capabilities of all threads except keep, and returns the
// capabilities that are left: the intersection of keep and the permitted set. It removes them from
// the effective, permitted, inheritable and ambient sets. The bounding set does not change: with
// no_new_privs, which Confine sets, executing a file never adds capabilities.
//
// Returns ENOTSUP in a binary with cgo, because Go cannot change threads that C code created.
func Confine(keep Capabilities) (left Capabilities, err error) {
	d, err := getCapabilities()
	if err != nil {
		return 0, err
	}
	left = d.permitted() & keep
	defer hurry()()
	if err := allThreads("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return 0, err
	}
	head, data := capHeader(), newCapData(d.effective()&left, left)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("drop capabilities: %w", errno)
	}
	return left, nil
}

// hurry gives all threads the highest priority until the returned function is called, if that is
// permitted. The Go runtime waits until each thread has run, which takes 12 ms instead of 0.2 ms if other
// processes use all CPUs.
func hurry() (restore func()) {
	const highest = -20
	usual, err := nice(0)
	if err != nil || usual == highest {
		return func() {}
	}
	renice(usual, highest)
	return func() {
		// A thread can start another one, with its own priority, while the threads are listed.
		for renice(highest, usual) {
		}
	}
}

// renice changes the nice value of all threads that have the value from, and reports whether it changed
// one.
func renice(from, to int) (changed bool) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		if has, err := nice(tid); err == nil && has == from && unix.Setpriority(unix.PRIO_PROCESS, tid, to) == nil {
			changed = true
		}
	}
	return changed
}

// nice returns the nice value of a thread, of the calling one for 0. The system call returns 20 minus the
// value.
func nice(tid int) (int, error) {
	value, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - value, err
}

func allThreads(operation string, trap, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(trap, a, b, c, 0, 0, 0)
	if errno == unix.ENOTSUP {
		return fmt.Errorf("%s on all threads: %w: binary built with cgo: build with CGO_ENABLED=0", operation, errno)
	}
	if errno != 0 {
		return fmt.Errorf("%s: %w", operation, errno)
	}
	return nil
}

// Try calls f on a thread whose effective capabilities are restricted to the given ones during the
// call, to test what f needs. f must do its work in the calling goroutine.
func Try(allowed Capabilities, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := getCapabilities()
	if err != nil {
		return err
	}
	restricted := newCapData(d.effective()&allowed, d.permitted())
	restricted[0].Inheritable, restricted[1].Inheritable = d[0].Inheritable, d[1].Inheritable
	if err := unix.Capset(capHeader(), &restricted[0]); err != nil {
		return fmt.Errorf("drop capabilities of a thread: %w", err)
	}
	result := f()
	if err := unix.Capset(capHeader(), &d[0]); err != nil {
		return fmt.Errorf("restore capabilities of a thread: %w", err)
	}
	return result
}
