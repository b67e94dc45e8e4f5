package system

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capData is what capget and capset move: two sets of 32 bits each.
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

// Effective returns the capabilities of the calling thread, which are those of all
// threads but within [Try].
func Effective() (Capabilities, error) {
	d, err := getCapabilities()
	if err != nil {
		return 0, err
	}
	return d.effective(), nil
}

// Confine gives up, on all threads and for good, every capability but those that are in
// keep, and returns what is left: what is in keep and was there. They go from the
// effective, permitted, inheritable and ambient sets. The bounding set stays: with
// no_new_privs, nothing that the process may still execute gets from it what the process
// has not itself, and to empty it would take a round of all threads for each capability.
//
// The error is ENOTSUP in a binary with cgo, whose threads Go does not know.
func Confine(keep Capabilities) (left Capabilities, err error) {
	d, err := getCapabilities()
	if err != nil {
		return 0, err
	}
	left = d.permitted() & keep
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

func allThreads(what string, trap, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(trap, a, b, c, 0, 0, 0)
	if errno == unix.ENOTSUP {
		return fmt.Errorf("%s on all threads: %w: the binary was built with cgo", what, errno)
	}
	if errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// Try calls f on a thread that has none but these capabilities for as long, to find out
// what f needs. f must not leave its goroutine.
func Try(with Capabilities, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := getCapabilities()
	if err != nil {
		return err
	}
	fewer := newCapData(d.effective()&with, d.permitted())
	fewer[0].Inheritable, fewer[1].Inheritable = d[0].Inheritable, d[1].Inheritable
	if err := unix.Capset(capHeader(), &fewer[0]); err != nil {
		return fmt.Errorf("drop capabilities of a thread: %w", err)
	}
	tried := f()
	if err := unix.Capset(capHeader(), &d[0]); err != nil {
		return fmt.Errorf("restore capabilities of a thread: %w", err)
	}
	return tried
}
