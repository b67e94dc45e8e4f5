package offwaketime

import (
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tooltest.MainOfWakes(m) }

// The waker that the test made is named, with its stacks and those of who waited, for all
// the time that was waited.
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
	// On a slow machine the reader finds some bytes there when it comes; with PREEMPT_RT it
	// may have to wait for the pipe's lock as well.
	if count < tooltest.Wakes/2 || count > 2*tooltest.Wakes || ns < waited*0.8 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, tooltest.Wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

// Who could run on is woken by nobody.
func TestPreempted(t *testing.T) {
	_, rows, res := tooltest.RunWakes(t, Tool, "--state", "0")
	if len(rows) != 0 {
		t.Errorf("waits of threads that could run have wakers: %v", rows)
	}
	for _, r := range res.Rows {
		if r.Has("waker_kernel_stack") {
			t.Errorf("row has a waker's stack: %v", r)
		}
	}
}

// Folded stacks go from who waited to who woke it.
func TestFolded(t *testing.T) {
	tooltest.AnyWay(t)
	out := tooltest.Text(t, Tool, []string{"-f", "-d", "--duration", "1s"}, nil)
	if !strings.Contains(out, ";schedule;__schedule;--;try_to_wake_up;") {
		t.Errorf("folded stacks are %s", out)
	}
}
