package inject

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"SyS_mount()":                           " [sys_mount]",
		"(true) => SyS_mount()(true)":           "(true) [sys_mount]",
		"((true)) => a => b()":                  "((true)) [b a]",
		"mount_subtree() => btrfs_mount()":      " [btrfs_mount mount_subtree]",
		"(order == 1)":                          "(order == 1) []",
		"a(struct b *c)(c->d == 1) => e()":      " [e a(struct b *c) if (c->d == 1)]",
		"d(struct x *y, int z)(STRCMP(y, 'b'))": " [d(struct x *y, int z) if (STRCMP(y, 'b'))]",
	} {
		base, parts, err := parse(spec)
		var probes []string
		for _, p := range parts {
			probes = append(probes, p.probe())
		}
		if got := base + " [" + strings.Join(probes, " ") + "]"; got != want || err != nil {
			t.Errorf("%s is %s, want %s: %v", spec, got, want, err)
		}
	}
	for _, spec := range []string{"", "a =>", "a => (true)", "a=>b=>c=>d=>e=>f=>g=>h=>i"} {
		if _, _, err := parse(spec); err == nil {
			t.Errorf("%q is accepted", spec)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		text string
		args []string
	}{
		{"missing mode", nil},
		{"--probability", []string{"-P", "2", "kmalloc", "a()"}},
		{"--probability", []string{"-P", "0", "kmalloc", "a()"}},
		{"a part between", []string{"bio", "=> a"}},
	} {
		tooltest.Fails(t, Tool, c.args, 2, c.text)
	}
}

// allocates is a mode whose function the kernel has, and that system call pipe2 calls.
func allocates(t *testing.T) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	for _, mode := range []string{"kmalloc", "alloc_page"} {
		if hasSymbol(t, modes[mode].function) {
			return mode
		}
		tooltest.Fails(t, Tool, []string{"--dry-run", mode, "sys_pipe2()"}, 4, modes[mode].needs)
	}
	t.Skip("the kernel has no function that fails allocations (CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC)")
	return ""
}

func hasSymbol(t *testing.T, name string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), " "+name+"\n")
}

const calls = 20

// pipes calls pipe2 with and without a flag.
func pipes(t *testing.T) {
	for i := range calls {
		var fds [2]int
		if err := unix.Pipe2(fds[:], (i%2)*unix.O_CLOEXEC); err != nil {
			t.Error(err)
			return
		}
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
}

// rows returns the number of calls that would fail while pipes runs.
func rows(t *testing.T, args ...string) int {
	t.Helper()
	args = append([]string{"--dry-run", "--pid", strconv.Itoa(os.Getpid())}, args...)
	res := tooltest.JSON(t, Tool, args, func() { pipes(t) })
	for _, r := range res.Events {
		if r.Num("pid") != float64(os.Getpid()) || r["injected"] != false {
			t.Errorf("row %v", r)
		}
	}
	return len(res.Events)
}

// TestChain compares the number of allocations in system calls with specs for all and for a part of
// these: the same call allocates the same number of times.
func TestChain(t *testing.T) {
	mode := allocates(t)
	all := rows(t, mode, "SyS_pipe2()")
	if all == 0 || all%calls != 0 {
		t.Fatalf("%d rows of %d calls", all, calls)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{mode, "(true) => sys_pipe2()(true)"}, all},
		{[]string{mode, "sys_pipe2()(arg2 == O_CLOEXEC)"}, all / 2},
		{[]string{mode, "sys_pipe2()(arg2 == 1)"}, 0},
		{[]string{"-c", "3", mode, "sys_pipe2()"}, 3},
		{[]string{mode, "sys_pipe2() => sys_openat()"}, 0}, // openat does not call pipe2
		{[]string{mode, "sys_pipe2() => sys_pipe2()"}, 0},  // nor pipe2 itself
	} {
		if got := rows(t, c.args...); got != c.want {
			t.Errorf("%q: %d rows, want %d of %d", c.args, got, c.want, all)
		}
	}
	inner := "create_pipe_files"
	if !hasSymbol(t, inner) {
		t.Skipf("the kernel has no function %s, which is inlined", inner)
	}
	if got := rows(t, mode, inner+"() => sys_pipe2()"); got == 0 || got > all {
		t.Errorf("%d rows within %s, %d in the call", got, inner, all)
	}
	if got := rows(t, mode, "sys_pipe2() => "+inner+"()"); got != 0 {
		t.Errorf("%d rows in the wrong order", got)
	}
}

// TestCondition checks a condition on the arguments of the failing function.
func TestCondition(t *testing.T) {
	mode := allocates(t)
	argument := map[string]string{"kmalloc": "gfpflags", "alloc_page": "gfp_mask"}[mode]
	all, none := rows(t, mode, "("+argument+" != 0) => sys_pipe2()"), rows(t, mode, "("+argument+" == 0) => sys_pipe2()")
	if all == 0 || none != 0 {
		t.Errorf("%d rows with flags, %d without", all, none)
	}
}

// TestInject makes pipe2 fail, where the kernel permits it, and checks that it works again.
func TestInject(t *testing.T) {
	mode := allocates(t)
	args := []string{"--pid", strconv.Itoa(os.Getpid()), mode, "sys_pipe2()"}
	if canOverride() != nil {
		tooltest.Fails(t, Tool, args, 4, "CONFIG_BPF_KPROBE_OVERRIDE")
		t.Skip("the kernel has no CONFIG_BPF_KPROBE_OVERRIDE")
	}
	var fds [2]int
	res := tooltest.JSON(t, Tool, args, func() {
		if err := unix.Pipe2(fds[:], 0); err == nil {
			t.Error("pipe2 works")
		}
	})
	if len(res.Events) != 1 || res.Events[0]["injected"] != true {
		t.Errorf("rows %v", res.Events)
	}
	pipes(t)
}
