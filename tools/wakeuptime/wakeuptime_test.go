package wakeuptime

import (
	"regexp"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tooltest.MainOfWakes(m) }

// TestWaker checks the waker and the total time.
func TestWaker(t *testing.T) {
	waited, rows, res := tooltest.RunWakes(t, Tool)
	var ns, count float64
	for _, r := range rows {
		if !r.HasSymbol("kernel_stack", "pipe_write") {
			continue // a signal of the Go runtime
		}
		if r.Num("waker_pid") != r.Num("pid") {
			t.Errorf("waker is %v", r)
		}
		ns += r.Num("total_ns")
		count += r.Num("count")
	}
	// The time of the reader includes run queue latency. On a slow machine it finds some bytes
	// without waiting; with PREEMPT_RT it can also wait for the lock of the pipe.
	if count < tooltest.Wakes/2 || count > 2*tooltest.Wakes || ns < waited*0.5 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, tooltest.Wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

func TestLength(t *testing.T) {
	if _, rows, _ := tooltest.RunWakes(t, Tool, "-m", "200000"); len(rows) != 0 {
		t.Errorf("of waits of 20 ms these exceed 200 ms: %v", rows)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"--duration", "1s"}, nil)
	block := regexp.MustCompile(`(?m)^    target:          .+ \(\d+\)\n(    \S+\n)+    waker:           .+ \(\d+\)\n        \d+\n\n`)
	if !block.MatchString(out) {
		t.Errorf("text is %s", out)
	}
}
