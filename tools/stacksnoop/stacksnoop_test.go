package stacksnoop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// native writes a program of this name, so that its tasks can be told from others.
func native(t *testing.T, comm string, n *tooltest.Native) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), comm)
	if err := os.Rename(n.Write(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs the program and returns its PID.
func run(t *testing.T, path string) float64 {
	t.Helper()
	cmd := exec.Command(path)
	if err := cmd.Run(); err != nil {
		t.Errorf("run %s: %v", path, err)
	}
	return float64(cmd.Process.Pid)
}

// TestTracepoint checks that each program that starts has the stack of exec.
func TestTracepoint(t *testing.T) {
	tooltest.Tracefs(t)
	const comm, n = "stacksnooptest", 20
	path := native(t, comm, &tooltest.Native{Touches: 1})
	args := []string{"--comm", comm, "t:sched:sched_process_exec"}
	var pids []float64
	res := tooltest.JSON(t, Tool, args, func() {
		for range n {
			pids = append(pids, run(t, path))
		}
	})
	if len(res.Events) != n || res.Summary.Num("lost") != 0 {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), n, res.Summary)
	}
	for i, r := range res.Events {
		names := strings.Join(r.Symbols("kernel_stack"), " ")
		if r.Num("pid") != pids[i] || r.Str("func") != "sched/sched_process_exec" || !strings.Contains(names, "execve") || strings.Contains(names, "bpf_") {
			t.Errorf("row %v, want the stack of exec in process %v", r, pids[i])
		}
		if frames := r["kernel_stack"].([]any); frames[0].(map[string]any)["address"] != nil {
			t.Errorf("an address without -s: %v", frames[0])
		}
	}
}

// TestText checks the columns of BCC, and offsets with -s.
func TestText(t *testing.T) {
	tooltest.Tracefs(t)
	const comm = "stacksnooptext"
	path := native(t, comm, &tooltest.Native{Touches: 1})
	for _, tc := range []struct {
		args  []string
		title string
		want  string
	}{
		{nil, "TIME(s) FUNCTION", "execve"},
		{[]string{"-s", "-v"}, "TIME(s) COMM PID CPU FUNCTION", "+0x"},
	} {
		out := tooltest.Text(t, Tool, append(tc.args, "--comm", comm, "t:sched:sched_process_exec"), func() { run(t, path) })
		title, rows, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(title), " "); got != tc.title || !strings.Contains(rows, tc.want) || !strings.Contains(rows, "\n    ") {
			t.Errorf("%q: the title is %q, want %q: %s", tc.args, got, tc.title, rows)
		}
		if len(tc.args) == 0 && strings.Contains(rows, "+0x") {
			t.Errorf("offsets without -s: %s", rows)
		}
	}
}

// TestKernelFunction shows a function with a known number of calls, which sleeps.
func TestKernelFunction(t *testing.T) {
	tooltest.KernelFunctions(t)
	path := native(t, "stacksnoopnaps", &tooltest.Native{Naps: 25, Nap: time.Millisecond})
	var pid float64
	res := tooltest.JSON(t, Tool, []string{"--comm", "stacksnoopnaps", "hrtimer_nanosleep"}, func() { pid = run(t, path) })
	if len(res.Events) != 25 || res.Summary.Num("lost") != 0 {
		t.Fatalf("%d rows, want 25: %v", len(res.Events), res.Summary)
	}
	for _, r := range res.Events {
		names := r.Symbols("kernel_stack")
		if r.Num("pid") != pid || r.Str("func") != "hrtimer_nanosleep" || len(names) < 2 || names[0] != "hrtimer_nanosleep" || !strings.Contains(strings.Join(names[1:], " "), "sys") {
			t.Errorf("row %v, want the stack of a system call of process %v", r, pid)
		}
	}
}

// TestOnlyKernel checks that functions in user space and returns are refused.
func TestOnlyKernel(t *testing.T) {
	tooltest.Root(t)
	for _, function := range []string{"c:malloc", "r:vfs_read", "u:c:setjmp"} {
		var out bytes.Buffer
		if code := tool.Run(t.Context(), Tool, []string{"-p", strconv.Itoa(os.Getpid()), function}, &out, &out); code != tool.ExitUsage || !strings.Contains(out.String(), "trace -U") {
			t.Errorf("%s: exit code %d: %s", function, code, out.String())
		}
	}
}
