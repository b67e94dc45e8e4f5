package stackcount

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

const path = "github.com/corescope/corescope/tools/stackcount."

//go:noinline
func callOften(lib *native.Library, n int) (sum uint64) {
	for range n {
		sum += lib.Call("outer", native.Call{Inner: "inner"})
	}
	return sum
}

//go:noinline
func callRarely(lib *native.Library, n int) (sum uint64) {
	for range n {
		sum -= lib.Call("inner", native.Call{})
	}
	return sum
}

// library generates a library with two functions and two callers of the inner one.
func library(t testing.TB) (inner string, load func()) {
	lib := native.Open(t, "libhit.so", []string{"outer", "inner"})
	return lib.Path + ":inner", func() {
		callOften(lib, 30)
		callRarely(lib, 20)
	}
}

// functions returns the functions of the library by their addresses relative to its size, because
// it has no section for trusted names.
func functions() map[uint64]string {
	return map[uint64]string{0x110000 / 128: "outer", 0x110080 / 128: "inner"}
}

func symbols(r tooltest.Row, key string) (all []string) {
	frames, _ := r[key].([]any)
	for _, f := range frames {
		frame, _ := f.(map[string]any)
		name, _ := frame["symbol"].(string)
		if offset, ok := frame["offset"].(float64); ok && name == "" {
			name = functions()[uint64(offset)/128]
		}
		all = append(all, name)
	}
	return all
}

// TestFunction checks a row per caller of a user function, including the direct caller.
func TestFunction(t *testing.T) {
	inner, load := library(t)
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "user=uprobe"}) {
		res := tooltest.JSON(t, Tool, append([]string{inner}, attach...), load)
		counts := map[string]float64{}
		for _, r := range res.Rows {
			stack := symbols(r, "user_stack")
			if len(stack) < 4 || stack[0] != "inner" || r.Has("kernel_stack") {
				t.Errorf("%v: row is %v", attach, r)
				continue
			}
			for _, caller := range []string{"callOften", "callRarely"} {
				if slices.Contains(stack, path+caller) {
					counts[strings.TrimSuffix(stack[1], ".abi0")+" "+caller] += r.Num("count")
				}
			}
		}
		if call := "github.com/corescope/corescope/internal/tooltest/native.call"; counts["outer callOften"] != 30 || counts[call+" callRarely"] != 20 {
			t.Errorf("%v: counts by direct caller are %v: %v", attach, counts, res.Rows)
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("%v: lost %d", attach, lost)
		}
	}
}

// TestTracepoint checks that a tracepoint also has a kernel stack.
func TestTracepoint(t *testing.T) {
	tooltest.Tracefs(t)
	var pid int
	res := tooltest.JSON(t, Tool, []string{"-P", "t:sched:sched_process_exec"}, func() {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		pid = cmd.Process.Pid
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("pid") == float64(pid) })
	if len(rows) != 1 || rows[0].Num("count") != 1 || rows[0].Str("func") != "sched/sched_process_exec" {
		t.Fatalf("rows are %v", res.Rows)
	}
	if got := strings.Join(symbols(rows[0], "kernel_stack"), " "); !strings.Contains(got, "exec") || !strings.Contains(got, "do_syscall") && !strings.Contains(got, "el0_svc") {
		t.Errorf("an exec's stack is %s", got)
	}
}

// TestProcesses groups by process with --perpid; otherwise the columns are absent.
func TestProcesses(t *testing.T) {
	tooltest.AnyAttachType(t)
	inner, load := library(t)
	for _, args := range [][]string{{inner}, {"-P", inner}} {
		res := tooltest.JSON(t, Tool, args, load)
		for _, r := range res.Rows {
			if r.Has("pid") != (len(args) > 1) || r.Has("pid") && r.Num("pid") != float64(os.Getpid()) {
				t.Errorf("%q: row is %v", args, r)
			}
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	inner, load := library(t)
	out := tooltest.Text(t, Tool, []string{inner}, load)
	if !strings.Contains(out, "libhit.so+0x110080 (no symbols)\n") || !strings.Contains(out, "        30\n\n") {
		t.Errorf("text is %s", out)
	}
}
