package profile

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// Functions without frame pointers have whole stacks, by their .eh_frame. By frame pointers
// alone they have not.
func TestFrameless(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	for _, how := range []string{"auto", "fp"} {
		res := tooltest.JSON(t, Tool, []string{"-F", "499", "-U", "--unwind", how, "--pid", pid}, tooltest.Spend(t, pid, 500*time.Millisecond))
		var all, whole float64
		for _, r := range res.Rows {
			all += r.Num("count")
			if slices.Equal(r.Symbols("user_stack"), tooltest.FramelessChain()) {
				whole += r.Num("count")
			}
		}
		if all < 5 {
			t.Fatalf("--unwind %s: %.0f samples", how, all)
		}
		if how == "auto" && whole < 0.99*all || how == "fp" && whole > 0 {
			t.Errorf("--unwind %s: %.0f of %.0f samples are whole: %v", how, whole, all, res.Rows)
		}
	}
}

// Where the addresses of frames are told, so is how each was found.
func TestHow(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	res := tooltest.JSON(t, Tool, []string{"-F", "499", "-U", "--address", "--pid", pid}, tooltest.Spend(t, pid, 300*time.Millisecond))
	if len(res.Rows) == 0 {
		t.Fatal("no samples")
	}
	for _, r := range res.Rows {
		frames, _ := r["user_stack"].([]any)
		for i, f := range frames {
			frame, _ := f.(map[string]any)
			if how := frame["how"]; i == 0 && how != nil || i > 0 && how != "eh" {
				t.Errorf("frame %d of %v was found by %v", i, frames, how)
			}
		}
	}
}

// A process that was seen and calls exec has the tables of its new program some milliseconds on.
func TestExec(t *testing.T) {
	tooltest.Root(t)
	cmd := exec.Command("sh", "-c", "ulimit -t 2; read go; while [ ${#i} -lt 4000 ]; do i=$i.; done; exec "+tooltest.FramelessProgram(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-F", "499", "-U", "--pid", strconv.Itoa(cmd.Process.Pid)}, func() {
		in.Close()
		_ = cmd.Wait() // until it has used up its two seconds
	})
	var all, whole float64
	for _, r := range res.Rows {
		if r.Str("comm") == "frameless" {
			all += r.Num("count")
			if slices.Equal(r.Symbols("user_stack"), tooltest.FramelessChain()) {
				whole += r.Num("count")
			}
		}
	}
	if all < 50 || whole < 0.9*all {
		t.Errorf("%.0f of %.0f samples are whole: %v", whole, all, res.Rows)
	}
}

//go:noinline
func bareOuter(d time.Duration) (n int) {
	for begin := cpuTime(); cpuTime() < begin+d; {
		n += bareLeaf(100_000)
	}
	return n
}

// bareLeaf has no frame on the stack.
//
//go:noinline
func bareLeaf(n int) (sum int) {
	for i := range n {
		sum ^= sum<<1 + i
	}
	return sum
}

// A Go function without a frame has its caller, by the program's own tables. Frame pointers
// lead past it.
func TestGoLeaf(t *testing.T) {
	tooltest.Root(t)
	for _, how := range []string{"auto", "fp"} {
		args := []string{"-F", "499", "-U", "--unwind", how, "--address", "--pid", strconv.Itoa(os.Getpid())}
		res := tooltest.JSON(t, Tool, args, func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			bareOuter(500 * time.Millisecond)
		})
		var all, right float64
		for _, r := range res.Rows {
			stack := r.Symbols("user_stack")
			if len(stack) < 2 || !strings.HasSuffix(stack[0], ".bareLeaf") {
				continue
			}
			all += r.Num("count")
			frame, _ := r["user_stack"].([]any)[1].(map[string]any)
			if strings.HasSuffix(stack[1], ".bareOuter") && frame["how"] == "go" && stack[len(stack)-1] == "runtime.goexit" {
				right += r.Num("count")
			}
		}
		if all < 20 {
			t.Fatalf("--unwind %s: %.0f samples in the leaf: %v", how, all, res.Rows)
		}
		if how == "auto" && right < 0.99*all || how == "fp" && right > 0 {
			t.Errorf("--unwind %s: %.0f of %.0f samples have its caller: %v", how, right, all, res.Rows)
		}
	}
}
