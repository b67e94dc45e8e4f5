package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestKernelStack checks that a new program has the stack of exec.
func TestKernelStack(t *testing.T) {
	tooltest.Tracefs(t)
	const comm = "kernelstacktest"
	path := filepath.Join(t.TempDir(), comm)
	if err := os.Rename((&tooltest.Native{Touches: 1}).Write(t), path); err != nil {
		t.Fatal(err)
	}
	args := []string{"-K", "--comm", comm, "t:sched:sched_process_exec(filename)"}
	load := func() { run(t, path) }
	res := tooltest.JSON(t, Tool, args, load)
	if len(res.Events) != 1 {
		t.Fatalf("rows %v", res.Events)
	}
	row := res.Events[0]
	if names := strings.Join(row.Symbols("kernel_stack"), " "); !strings.Contains(names, "execve") || strings.Contains(names, "bpf_") {
		t.Errorf("the stack is %q, want one of execve", names)
	}
	if row.Object("args").Str("filename") != path || row.Has("user_stack") {
		t.Errorf("row %v", row)
	}
	if out := tooltest.Text(t, Tool, args, load); !strings.Contains(out, "filename=\""+path+"\"\n    ") || !strings.Contains(out, "execve") {
		t.Errorf("text %q", out)
	}
}

// TestUserStack checks stacks after values of any length. The program has exited before the last
// one is symbolized.
func TestUserStack(t *testing.T) {
	path := (&tooltest.Native{Touches: 20}).Write(t)
	for _, attach := range attachOptions() {
		args := append(attach, "-U", path+":touch(arg1, arg3:str)")
		res := tooltest.JSON(t, Tool, args, func() { run(t, path) })
		if len(res.Events) != 20 || res.Summary.Num("lost") != 0 {
			t.Fatalf("%v: %d rows: %v", attach, len(res.Events), res.Summary)
		}
		for i, row := range res.Events {
			args, names := row.Object("args"), row.Symbols("user_stack")
			if args.Num("arg1") != float64(20-i) || args.Str("arg3") != "known answer" || !slices.Equal(names, []string{"touch", "_start"}) {
				t.Errorf("%v: row %v", attach, row)
			}
		}
	}
	if rows := tooltest.JSON(t, Tool, []string{path + ":touch"}, func() { run(t, path) }).Events; rows[0].Has("user_stack") {
		t.Error("stack without -U")
	}
}

// TestOddPath expects the exact path of a program whose name is not UTF-8, in the row and in the stack.
func TestOddPath(t *testing.T) {
	path := (&tooltest.Native{Touches: 1}).WriteOdd(t)
	res := tooltest.JSON(t, Tool, []string{"-U", path + ":touch"}, func() { run(t, path) })
	if len(res.Events) != 1 {
		t.Fatalf("rows %v, want 1: %v", res.Events, res.Summary)
	}
	row := res.Events[0]
	frames, _ := row["user_stack"].([]any)
	if row.Bytes(t, "module") != path || len(frames) == 0 {
		t.Fatalf("row %v, want the module %q and a stack", row, path)
	}
	frame, _ := frames[0].(map[string]any)
	if got := tooltest.Row(frame).Bytes(t, "module"); got != path {
		t.Errorf("module %q of the frame, want %q", got, path)
	}
}

// TestBothStacks checks that a system call has a kernel stack and a user stack.
func TestBothStacks(t *testing.T) {
	tooltest.Tracefs(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	probe := fmt.Sprintf("t:raw_syscalls:sys_enter(id) if id == %d", unix.SYS_NANOSLEEP)
	res := tooltest.JSON(t, Tool, []string{"-K", "-U", "--pid", pid, "--limit", "1", probe}, nil)
	if len(res.Events) != 1 {
		t.Fatalf("rows %v", res.Events)
	}
	kernel, user := res.Events[0].Symbols("kernel_stack"), res.Events[0].Symbols("user_stack")
	if len(kernel) == 0 || len(user) == 0 {
		t.Errorf("stacks %q, %q", kernel, user)
	}
}

// TestFramelessStack checks that callers of functions without frame pointers are found with
// .eh_frame.
func TestFramelessStack(t *testing.T) {
	tooltest.Tracefs(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	probe := fmt.Sprintf("t:raw_syscalls:sys_enter(id) if id == %d", unix.SYS_NANOSLEEP)
	whole := map[string]bool{"auto": true, "fp": false}
	for unwind, want := range whole {
		res := tooltest.JSON(t, Tool, []string{"-U", "--unwind", unwind, "--pid", pid, "--limit", "20", probe}, nil)
		for _, r := range res.Events {
			if got := r.Symbols("user_stack"); slices.Equal(got, tooltest.FramelessChain()) != want {
				t.Errorf("--unwind %s: stack %v: %v", unwind, got, r)
			}
		}
		if len(res.Events) != 20 {
			t.Errorf("--unwind %s: %d rows, want 20", unwind, len(res.Events))
		}
	}
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, args, &out, &errOut); code != tool.ExitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, &errOut)
	}
	return out.String()
}

// TestInfo prints a function whose types are the same on all kernels.
func TestInfo(t *testing.T) {
	tooltest.Root(t)
	const want = "ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos);\n"
	for _, args := range [][]string{{"--info", "vfs_read"}, {"info", "vfs_read"}} {
		if got := output(t, args...); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, []string{"-i", "no_such_function_there"}, &out, &errOut); code != tool.ExitUsage {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
}

func TestDeclaration(t *testing.T) {
	char := &btf.Int{Name: "char", Size: 1}
	void := &btf.Void{}
	for want, f := range map[string]*btf.FuncProto{
		"void f(void);": {Return: void},
		"const char *f(const char **a, char *const b, ...);": {
			Return: &btf.Pointer{Target: &btf.Const{Type: char}},
			Params: []btf.FuncParam{
				{Name: "a", Type: &btf.Pointer{Target: &btf.Pointer{Target: &btf.Const{Type: char}}}},
				{Name: "b", Type: &btf.Const{Type: &btf.Pointer{Target: char}}}, {Type: void},
			},
		},
		"struct s f(enum e a, void *b, t c);": {
			Return: &btf.Struct{Name: "s"},
			Params: []btf.FuncParam{
				{Name: "a", Type: &btf.Enum{Name: "e"}}, {Name: "b", Type: &btf.Pointer{Target: void}},
				{Name: "c", Type: &btf.Typedef{Name: "t", Type: char}},
			},
		},
	} {
		if got := target.Declaration(&btf.Func{Name: "f", Type: f}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
