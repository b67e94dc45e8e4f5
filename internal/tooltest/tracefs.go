package tooltest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

const tracefs = "/sys/kernel/tracing"

// mountedByTests is the source of the mount of tracefs that tests have made, by which they recognize it.
const mountedByTests = "corescope-tests"

// Tracefs is for tests whose result depends on tracefs. Every live test mounts tracefs if it is not
// mounted, as it is on most hosts, and the last one on this machine that ends unmounts it. Tracefs
// skips the test if the kernel has no tracefs.
func Tracefs(t testing.TB) {
	t.Helper()
	Root(t)
	err := machine.tracefsError()
	if err == nil {
		return
	}
	if known, readErr := os.ReadFile("/proc/filesystems"); readErr == nil && !bytes.Contains(known, []byte("\ttracefs\n")) {
		t.Skip("tracefs is not supported by this kernel: /proc/filesystems does not list it")
	}
	t.Fatal(err)
}

// mountTracefs mounts tracefs if it is not mounted.
func mountTracefs() error {
	if mounted, err := hasTracefs(); mounted || err != nil {
		return err
	}
	if err := unix.Mount(mountedByTests, tracefs, "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount tracefs: %w", err)
	}
	return nil
}

// unmountTracefs unmounts tracefs if tests have mounted it and nobody uses it. The caller has excluded
// all other live tests.
func unmountTracefs() {
	// Not /proc/self: the main thread can be in another mount namespace (NewMounts).
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err == nil && bytes.Contains(mounts, []byte(" - tracefs "+mountedByTests+" ")) {
		_ = unix.Unmount(tracefs, 0) // fails if it is in use
	}
}

func hasTracefs() (bool, error) {
	var s unix.Statfs_t
	err := unix.Statfs(tracefs, &s)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("stat tracefs: %w", err)
	}
	return err == nil && s.Type == unix.TRACEFS_MAGIC, nil
}

// SystemCallTracepoints is Tracefs for tests of the tracepoints of each system call
// (CONFIG_FTRACE_SYSCALLS).
func SystemCallTracepoints(t testing.TB) {
	t.Helper()
	Tracefs(t)
	if _, err := os.Stat(tracefs + "/events/sched"); err != nil {
		t.Fatalf("find events in tracefs: %v", err)
	}
	if _, err := os.Stat(tracefs + "/events/syscalls"); errors.Is(err, os.ErrNotExist) {
		t.Skip("tracepoints of system calls are not supported by this kernel (CONFIG_FTRACE_SYSCALLS)")
	}
}

// KernelFunctions skips the test if the kernel cannot attach programs to kernel functions: it has
// neither kprobes nor BPF trampolines. It tests the kernel independent of the tool.
func KernelFunctions(t testing.TB) {
	t.Helper()
	Root(t)
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); err == nil {
		return
	}
	if err := tryFentry(); err != nil {
		t.Skipf("neither kprobes nor fentry programs are supported by this kernel: %v", err)
	}
}

// Fentry skips the test if the kernel does not support fentry programs.
func Fentry(t testing.TB) {
	t.Helper()
	Root(t)
	if err := tryFentry(); err != nil {
		t.Skipf("fentry programs are not supported by this kernel: %v", err)
	}
}

// tryFentry loads a program for a kernel function, attaches it, and detaches it. On arm64, loading
// works since 6.0, but attaching only since 6.4.
func tryFentry() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "hrtimer_nanosleep", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer p.Close()
	attr := struct {
		name    uint64
		program uint32
		_       uint32
	}{program: uint32(p.FD())}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_RAW_TRACEPOINT_OPEN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return fmt.Errorf("attach program: %w", errno)
	}
	return unix.Close(int(fd))
}
