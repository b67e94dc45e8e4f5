package profile

import (
	"debug/elf"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// returnProbe has the kernel note returns of a function, by perf's own means: as the
// function is called, it puts an address of its own in the place of the caller's.
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
		t.Skipf("no uprobes: %v", err)
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

// Where uretprobes have taken the place of return addresses, stacks are whole all the same.
func TestReturnProbe(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.FramelessProgram(t)
	cmd := exec.Command("sh", "-c", "ulimit -t 2; read go; exec "+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{"frameless_middle", "frameless_outer"} {
		returnProbe(t, cmd.Process.Pid, path, function)
	}
	res := tooltest.JSON(t, Tool, []string{"-F", "499", "-U", "--pid", strconv.Itoa(cmd.Process.Pid)}, func() {
		in.Close()
		_ = cmd.Wait() // until it has used up its two seconds
	})
	var all, whole float64
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("comm") == "frameless" }) {
		all += r.Num("count")
		if slices.Equal(r.Symbols("user_stack"), tooltest.FramelessChain()) {
			whole += r.Num("count")
		}
	}
	if all < 50 || whole < 0.9*all {
		t.Errorf("%.0f of %.0f samples are whole: %v", whole, all, res.Rows)
	}
}
