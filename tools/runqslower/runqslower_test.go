package runqslower

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// total returns the number of waits and their sum.
func total(rows []tooltest.Row) (n uint64, sum time.Duration) {
	for _, r := range rows {
		n++
		sum += time.Duration(r.Num("latency_ns"))
	}
	return n, sum
}

// TestSpinners makes two threads compete for one CPU. All waits of each are rows (min_us 0); their
// number is that of its context switches and their sum the kernel's run_delay. An emulated machine
// can stall between readings of two clocks, so one of five attempts must agree.
func TestSpinners(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	both := []*schedtest.Worker{schedtest.Start(t, cpu, nil), schedtest.Start(t, cpu, nil)}
	var wrong []string
	for range 5 {
		if wrong = spinners(t, cpu, both); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// spinners returns the times that do not agree.
func spinners(t *testing.T, cpu int, both []*schedtest.Worker) (wrong []string) {
	t.Helper()
	want := make([]schedtest.Facts, 2)
	args := []string{"0", "--tid", strconv.Itoa(both[0].PID), "--tid", strconv.Itoa(both[1].PID)}
	res := tooltest.JSON(t, Tool, args, func() {
		for i, w := range both {
			want[i] = w.Facts(t)
			w.Begin(t, "spin", 300)
		}
		for i, w := range both {
			w.End(t)
			want[i] = w.Facts(t).Since(want[i])
		}
	})
	// On a slow machine the reader, which a perf buffer wakes for each row, makes the threads wait so often
	// that rows are lost.
	lost := uint64(res.Summary.Object("reasons").Num("buffer_full"))
	if n, all := uint64(len(res.Events))+schedtest.Unobserved(res)+lost, want[0].Woken+want[0].Preempted+want[1].Woken+want[1].Preempted; n != all {
		t.Errorf("%d waits, of which %d unobserved and %d lost, the kernel has %d", n, schedtest.Unobserved(res), lost, all)
	}
	for i, w := range both {
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == w.PID })
		n, sum := total(rows)
		if all := want[i].Woken + want[i].Preempted; n > all || all-n > want[i].Hidden+lost {
			t.Errorf("thread %d: %d waits, want %d, of which %d may be hidden", w.PID, n, all, want[i].Hidden)
		}
		if after := checkRows(t, rows, cpu, both[i].PID, both[1-i].PID); after == 0 {
			wrong = append(wrong, fmt.Sprintf("no wait of thread %d was ended by thread %d", w.PID, both[1-i].PID))
		}
		t.Logf("thread %d: %d waits of %v, run_delay is %v", w.PID, n, sum, want[i].Wait)
	}
	if lost > 0 {
		t.Logf("%d rows lost: times not compared", lost)
		return nil
	}
	schedtest.SteadyClock(t)
	for i, w := range both {
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == w.PID })
		_, sum := total(rows)
		if !schedtest.Near(sum, want[i].Wait, time.Duration(want[i].Hidden)*longest(rows)) {
			wrong = append(wrong, fmt.Sprintf("thread %d waited %v, run_delay is %v", w.PID, sum, want[i].Wait))
		}
	}
	return wrong
}

func longest(rows []tooltest.Row) (most time.Duration) {
	for _, r := range rows {
		most = max(most, time.Duration(r.Num("latency_ns")))
	}
	return most
}

// checkRows checks the columns of the waits of a thread that competes with another one, and returns
// the number of waits after a preemption until which the other one used the CPU.
func checkRows(t *testing.T, rows []tooltest.Row, cpu, pid, other int) (after int) {
	t.Helper()
	for _, r := range rows {
		if int(r.Num("pid")) != pid || int(r.Num("cpu")) != cpu || r.Str("comm") != "runqslower.test" {
			t.Errorf("thread %d: row %v", pid, r)
		}
		if int(r.Num("prev_tid")) == pid {
			t.Errorf("thread %d waited for itself: %v", pid, r)
		}
		if r.Str("reason") != "preempted" {
			continue
		}
		if int(r.Num("prev_tid")) == other {
			after++
			if int(r.Num("prev_pid")) != other || r.Str("prev_comm") != "runqslower.test" {
				t.Errorf("thread %d: previous task of %v", pid, r)
			}
		}
	}
	return after
}

// TestMinimum checks that exactly the waits below the minimum are not shown: those with a minimum of
// 0 that reach it.
func TestMinimum(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	// With two competitors a wait has two time slices, which can be 1.4 ms each.
	var workers []*schedtest.Worker
	for range 3 {
		workers = append(workers, schedtest.Start(t, cpu, nil))
	}
	var all *tooltest.Result
	filter := []string{"--tid", strconv.Itoa(workers[0].PID)}
	long := tooltest.JSON(t, Tool, append(filter, "1ms"), func() {
		all = tooltest.JSON(t, Tool, append(filter, "0"), func() {
			for _, w := range workers {
				w.Begin(t, "spin", 300)
			}
			for _, w := range workers {
				w.End(t)
			}
		})
	})
	// Two programs at one tracepoint read the clock one after the other, and an emulated machine can stall
	// between them.
	const apart = 500 * time.Microsecond
	most, least := 0, 0
	for _, r := range all.Events {
		if ns := time.Duration(r.Num("latency_ns")); ns >= time.Millisecond+apart {
			most, least = most+1, least+1
		} else if ns >= time.Millisecond-apart {
			most++
		}
	}
	for _, r := range long.Events {
		if r.Num("latency_ns") < 1e6 {
			t.Errorf("a wait is too short: %v", r)
		}
	}
	hidden := len(all.Events) // the first run ends later than the second
	if n := len(long.Events); n < least || n > most+hidden || least == 0 {
		t.Errorf("%d waits of at least 1 ms, want %d to %d", n, least, most)
	}
}

// TestText checks the columns of text output with and without the previous task.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	a, b := schedtest.Pair(t, cpu, cpu, nil)
	for flag, want := range map[string]string{
		"": "TIME COMM TID LAT(us)", "-P": "TIME COMM TID LAT(us) PREV COMM PREV TID",
	} {
		args := append(strings.Fields(flag), "--pid", strconv.Itoa(a.PID), "0")
		out := tooltest.Text(t, Tool, args, func() { schedtest.Play(t, a, b, 100) })
		head, rest, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(head), " "); got != want || !strings.Contains(rest, fmt.Sprint(" runqslower.test  ", a.PID)) {
			t.Errorf("%q: text is %s", flag, out)
		}
	}
}
