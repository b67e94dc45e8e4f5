package offwaketime

import (
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tooltest.MainOfWakes(m) }

// TestWaker checks the waker, the stacks of both threads, and the total time.
func TestWaker(t *testing.T) {
	waited, rows, res := tooltest.RunWakes(t, Tool)
	var ns, count float64
	for _, r := range rows {
		if !r.HasSymbol("user_stack", ".waitForOther") || !r.HasSymbol("kernel_stack", "pipe_read") {
			continue
		}
		if !r.HasSymbol("waker_user_stack", ".wakeOther") || !r.HasSymbol("waker_kernel_stack", "pipe_write") {
			t.Errorf("woken by %v, %v", r.Symbols("waker_user_stack"), r.Symbols("waker_kernel_stack"))
		}
		if r.Num("waker_pid") != r.Num("pid") || r.Num("waker_tid") == r.Num("tid") {
			t.Errorf("waker is %v", r)
		}
		ns += r.Num("total_ns")
		count += r.Num("count")
	}
	// On a slow machine the reader sometimes finds bytes without waiting; with PREEMPT_RT it can
	// also wait for the lock of the pipe.
	if count < tooltest.Wakes/2 || count > 2*tooltest.Wakes || ns < waited*0.8 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, tooltest.Wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

// TestPreempted checks that runnable threads have no waker.
func TestPreempted(t *testing.T) {
	_, rows, res := tooltest.RunWakes(t, Tool, "--state", "0")
	if len(rows) != 0 {
		t.Errorf("waits of runnable threads have wakers: %v", rows)
	}
	for _, r := range res.Rows {
		if r.Has("waker_kernel_stack") {
			t.Errorf("row has a stack of a waker: %v", r)
		}
	}
}

// TestFolded checks that folded stacks go from the waiting thread to the waker.
func TestFolded(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"-f", "-d", "--duration", "1s"}, nil)
	if !strings.Contains(out, ";schedule;__schedule;--;try_to_wake_up;") {
		t.Errorf("folded stacks are %s", out)
	}
}
