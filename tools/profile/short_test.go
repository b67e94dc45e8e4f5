package profile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// shortEnv makes the test binary execute another program, which the kernel kills when it has used
// shortTime of CPU time.
const shortEnv = "CORESCOPE_SHORT"

const shortTime = 5 * time.Millisecond

func runShort(program string) {
	_, err := unix.Setitimer(unix.ITIMER_VIRTUAL, unix.Itimerval{Value: unix.NsecToTimeval(int64(shortTime))})
	if err == nil {
		err = unix.Exec(program, []string{program}, nil)
	}
	fmt.Fprintln(os.Stderr, "execute", program, err)
	os.Exit(1)
}

// execShort runs the test binary as runShort. The timer of the CPU time can fail to end the program in
// a virtual machine, so it is also killed after a while.
func execShort(t *testing.T, program string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), shortEnv+"="+program)
	if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
		return fmt.Errorf("run program: %v: %s", err, out)
	}
	return nil
}

// TestShortLivedTables checks that processes that live for a few milliseconds have complete and
// symbolized stacks once their file has an unwind table: unwind tables belong to files, not to
// processes.
func TestShortLivedTables(t *testing.T) {
	tooltest.Root(t)
	program := tooltest.FramelessProgram(t)
	args := []string{"-F", "997", "-U", "--comm", "frameless", "--interval", "500ms"}
	res := tooltest.JSONUntil(t, Tool, args, hasSteady(20), func(more func() bool) {
		for more() {
			if err := execShort(t, program); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for _, r := range res.Rows {
		frames, _ := r["user_stack"].([]any)
		for _, f := range frames {
			if frame, _ := f.(map[string]any); frame["symbol"] == nil && frame["module"] == nil {
				t.Errorf("a frame has no file: %v", r)
			}
		}
	}
	checkSteady(t, res.Rows, 0.98)
}

// TestForked checks that the frames of processes that live for a few milliseconds and execute no program
// of their own have files: their mappings are in the stacks.
func TestForked(t *testing.T) {
	tooltest.Root(t)
	if !tooltest.IsDynamic(t, "sh") {
		t.Skip("sh is statically linked: stacks have one mapping")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	const comm = "cs-forks"
	link := filepath.Join(t.TempDir(), comm)
	if err := os.Symlink(sh, link); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command(link, "-c", "while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done); done")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		shell.Process.Kill()
		shell.Wait()
	})
	ofChildren := func(rows []tooltest.Row) []tooltest.Row {
		return slices.DeleteFunc(slices.Clone(rows), func(r tooltest.Row) bool {
			return !r.Has("user_stack") || r.Num("pid") == float64(shell.Process.Pid)
		})
	}
	isSampled := func(rows []tooltest.Row) bool { return len(ofChildren(rows)) >= 20 }
	args := []string{"-F", "997", "-U", "--comm", comm, "--interval", "500ms"}
	res := tooltest.JSONUntil(t, Tool, args, isSampled, func(more func() bool) {
		for more() {
			time.Sleep(time.Millisecond)
		}
	})
	if !isSampled(res.Rows) {
		t.Errorf("few stacks of children: %v", res.Rows)
	}
	for _, r := range ofChildren(res.Rows) {
		for _, f := range r["user_stack"].([]any) {
			if frame, _ := f.(map[string]any); frame["reason"] == "exited" {
				t.Fatalf("a frame has no file: %v", r)
			}
		}
	}
}

// TestWildFrames checks that a frame pointer register with another value causes no frames, in
// particular none outside code.
func TestWildFrames(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.WildFrames(t).Process.Pid)
	for _, more := range [][]string{{"--pid", pid}, {"--comm", "wild"}} {
		res := sample(t, append(more, "-F", "499", "-U"), pid, 20)
		for _, r := range res.Rows {
			if got := r.Symbols("user_stack"); !slices.Equal(got, []string{tooltest.WildFunction, "[incomplete]"}) {
				t.Errorf("%v: stack is %v", more, got)
			}
		}
	}
}
