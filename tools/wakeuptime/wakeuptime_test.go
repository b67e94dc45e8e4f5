package wakeuptime

import (
	"regexp"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tooltest.MainOfWakes(m) }

// The waker that the test made is named, for all the time that was waited.
func TestWaker(t *testing.T) {
	waited, rows, res := tooltest.RunWakes(t, Tool)
	var ns, count float64
	for _, r := range rows {
		if !r.HasSymbol("kernel_stack", "pipe_write") {
			continue // a signal of the runtime's
		}
		if r.Num("waker_pid") != r.Num("pid") {
			t.Errorf("waker is %v", r)
		}
		ns += r.Num("total_ns")
		count += r.Num("count")
	}
	// The reader's time has the wait for a CPU in it, and on a slow machine it finds some
	// bytes there when it comes; with PREEMPT_RT it may have to wait for the pipe's lock as well.
	if count < tooltest.Wakes/2 || count > 2*tooltest.Wakes || ns < waited*0.5 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, tooltest.Wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

func TestLength(t *testing.T) {
	if _, rows, _ := tooltest.RunWakes(t, Tool, "-m", "200000"); len(rows) != 0 {
		t.Errorf("of waits of 20 ms these are longer than 200: %v", rows)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyWay(t)
	out := tooltest.Text(t, Tool, []string{"--duration", "1s"}, nil)
	block := regexp.MustCompile(`(?m)^    target:          .+ \(\d+\)\n(    \S+\n)+    waker:           .+ \(\d+\)\n        \d+\n\n`)
	if !block.MatchString(out) {
		t.Errorf("text is %s", out)
	}
}
