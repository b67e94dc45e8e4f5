package tooltest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// HasTracepoint reports whether the kernel has a tracepoint, from its BTF and independent of the
// tool.
func HasTracepoint(t testing.TB, name string) bool {
	t.Helper()
	var typedef *btf.Typedef
	return inKernel(t, "btf_trace_"+name, &typedef)
}

// HasFunction reports whether the kernel has a function, from its BTF.
func HasFunction(t testing.TB, name string) bool {
	t.Helper()
	var function *btf.Func
	return inKernel(t, name, &function)
}

// HasMember reports whether a struct of the kernel has a member, from its BTF.
func HasMember(t testing.TB, name, member string) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var s *btf.Struct
	if err := types.TypeByName(name, &s); err != nil {
		return false
	}
	return slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == member })
}

func inKernel(t testing.TB, name string, typ any) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	err = types.TypeByName(name, typ)
	if err != nil && !errors.Is(err, btf.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// Forced reports whether this run forces an attach type (test/kernels). The tool can then miss
// events that it observes with another attach type.
func Forced() bool { return strings.Contains(os.Getenv(argsEnv), "--hook ") }

// HasHardwareCounter reports whether this machine counts an event (PERF_COUNT_HW_*) in hardware.
func HasHardwareCounter(t testing.TB, event uint64) bool {
	t.Helper()
	Root(t)
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: event, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	} else if err != unix.ENOENT && err != unix.EOPNOTSUPP {
		t.Fatalf("open perf event: %v", err)
	}
	return err == nil
}
