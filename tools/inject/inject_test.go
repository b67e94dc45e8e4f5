package inject

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
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

const loadEnv = "INJECT_TEST_LOAD"

// TestMain lets the test binary be the process whose calls fail: the tool excludes its own process.
// It calls pipe2 once per line that it reads, with O_CLOEXEC in every second call, and writes the
// result.
func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin)
	for i := 0; in.Scan(); i++ {
		var fds [2]int
		err := unix.Pipe2(fds[:], (i%2)*unix.O_CLOEXEC)
		fmt.Println(err)
		if err == nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
	}
}

// load is a process that calls pipe2.
type load struct {
	pid string
	in  io.Writer
	out *bufio.Scanner
}

func startLoad(t *testing.T) *load {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &load{strconv.Itoa(cmd.Process.Pid), in, bufio.NewScanner(out)}
}

// call calls pipe2 and returns the result.
func (l *load) call(t *testing.T) string {
	t.Helper()
	if _, err := io.WriteString(l.in, "\n"); err != nil || !l.out.Scan() {
		t.Errorf("no call: %v", err)
	}
	return l.out.Text()
}

// rows returns the number of calls that would fail in calls of pipe2.
func rows(t *testing.T, args ...string) int {
	t.Helper()
	l := startLoad(t)
	l.call(t) // the runtime of Go calls pipe2 too, when it first waits for input
	args = append([]string{"--dry-run", "--pid", l.pid}, args...)
	res := tooltest.JSON(t, Tool, args, func() {
		for range calls {
			if result := l.call(t); result != "<nil>" {
				t.Errorf("pipe2: %s", result)
			}
		}
	})
	for _, r := range res.Events {
		if strconv.Itoa(int(r.Num("pid"))) != l.pid || r["injected"] != false {
			t.Errorf("row %v", r)
		}
	}
	return len(res.Events)
}

// TestChain compares the number of allocations in system calls with specs for all and for a part of
// these. Each call allocates several times, and now and then once more.
func TestChain(t *testing.T) {
	mode := allocates(t)
	all := rows(t, mode, "SyS_pipe2()")
	each := all / calls
	if each == 0 {
		t.Fatalf("%d rows of %d calls", all, calls)
	}
	for _, c := range []struct {
		args        []string
		least, most int
	}{
		{[]string{mode, "(true) => sys_pipe2()(true)"}, calls * each, calls * 2 * each},
		{[]string{mode, "sys_pipe2()(arg2 == O_CLOEXEC)"}, calls / 2 * each, calls*each - 1},
		{[]string{mode, "sys_pipe2()(arg2 == 1)"}, 0, 0},
		{[]string{"-c", "3", mode, "sys_pipe2()"}, 3, 3},
		{[]string{mode, "sys_pipe2() => sys_openat()"}, 0, 0}, // openat does not call pipe2
		{[]string{mode, "sys_pipe2() => sys_pipe2()"}, 0, 0},  // nor pipe2 itself
	} {
		if got := rows(t, c.args...); got < c.least || got > c.most {
			t.Errorf("%q: %d rows, want %d to %d", c.args, got, c.least, c.most)
		}
	}
	inner := "create_pipe_files"
	if !hasSymbol(t, inner) {
		t.Skipf("the kernel has no function %s, which is inlined", inner)
	}
	if got := rows(t, mode, inner+"() => sys_pipe2()"); got == 0 || got > 2*all {
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
	l := startLoad(t)
	args := []string{"--pid", l.pid, mode, "sys_pipe2()"}
	if canOverride() != nil {
		tooltest.Fails(t, Tool, args, 4, "CONFIG_BPF_KPROBE_OVERRIDE")
		t.Skip("the kernel has no CONFIG_BPF_KPROBE_OVERRIDE")
	}
	res := tooltest.JSON(t, Tool, args, func() {
		if result := l.call(t); result == "<nil>" {
			t.Error("pipe2 works")
		}
	})
	if len(res.Events) != 1 || res.Events[0]["injected"] != true {
		t.Errorf("rows %v", res.Events)
	}
	if result := l.call(t); result != "<nil>" {
		t.Errorf("after the run, pipe2: %s", result)
	}
}
