package profile

import (
	"debug/elf"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// returnProbe attaches a uretprobe with perf_event_open: at function entry the kernel replaces the
// return address with its own.
func returnProbe(t *testing.T, pid int, path, function string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == function })
	kind, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		t.Skipf("uprobes are unavailable: %v", err)
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(kind)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := unix.BytePtrFromString(path)
	const isReturn = 1
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: uint32(number), Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: isReturn,
		Ext1: uint64(uintptr(unsafe.Pointer(name))), Ext2: symbols[i].Value - f.Progs[0].Vaddr,
	}, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatalf("open perf event: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

// TestReturnProbe checks that stacks are complete even if uretprobes have replaced return
// addresses.
func TestReturnProbe(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.FramelessProgram(t)
	cmd, start := tooltest.WaitingProgram(t, path)
	for _, function := range []string{"frameless_middle", "frameless_outer"} {
		returnProbe(t, cmd.Process.Pid, path, function)
	}
	checkWhole(t, cmd.Process.Pid, start, 0.9)
}
