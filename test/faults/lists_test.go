package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A list shows what its load holds when the tool starts, and ends by itself. The load acquires its
// objects before that.

// kept refers to the objects that a load holds, so that the garbage collector does not close them.
var kept []any

// keepFiles opens a file n times.
func keepFiles(n int, path string) (int, error) {
	for i := range n {
		if _, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return i, err
		}
	}
	return n, nil
}

// keepAreas maps n areas with alternating protections, which the kernel cannot merge.
func keepAreas(n int, _ string) (int, error) {
	for i := range n {
		b, err := unix.Mmap(-1, 0, 4096, i%2*unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return i, err
		}
		kept = append(kept, b)
	}
	return n, nil
}

func keepSockets(n int, _ string) (int, error) {
	for i := range n {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return i, err
		}
		if err := unix.Bind(s, loopback(0)); err != nil {
			return i, err
		}
	}
	return n, nil
}

func keepMaps(n int, _ string) (int, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return 0, err
	}
	for i := range n {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "cs_kept", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			return i, err
		}
		kept = append(kept, m)
	}
	return n, nil
}

// links counts the load's descriptors in /proc/PID/fd whose target begins with the string.
func links(begin string) func(*load, testing.TB) int {
	return func(l *load, t testing.TB) (n int) {
		t.Helper()
		dir := fmt.Sprintf("/proc/%d/fd", l.pid)
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range all {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, begin) {
				n++
			}
		}
		return n
	}
}

// areas counts the memory areas of the load. [vsyscall], which /proc/PID/maps also lists, is not an
// area of the process.
func areas(l *load, t testing.TB) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", l.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "[vsyscall]\n") {
			n++
		}
	}
	return n
}

func threads(l *load, t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", l.pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
