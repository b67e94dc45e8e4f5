package runqlat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// found returns the waits with this reason and thread, in all reports.
type found struct {
	count    uint64
	sum, max time.Duration
}

func waits(res *tooltest.Result, tid int, reason string) (f found) {
	for _, h := range res.Histograms {
		key := h.Object("key")
		if int(key.Num("tid")) != tid || key.Str("reason") != reason {
			continue
		}
		f.count += uint64(h.Num("count"))
		f.sum += time.Duration(h.Num("sum") * 1000)
		f.max = max(f.max, time.Duration(h.Num("max")*1000))
	}
	return f
}

// checkCounts compares with the counters of the kernel: waits that are not counted, because of hidden
// tasks, are lost and reported as unobserved. By reason there is one more difference: the kernel counts a task that is woken while it is
// about to sleep, and still loses the CPU, as a voluntary switch.
func checkCounts(t *testing.T, res *tooltest.Result, w *schedtest.Worker, want schedtest.Facts) {
	t.Helper()
	wakeup, preempted := waits(res, w.PID, "wakeup").count, waits(res, w.PID, "preempted").count
	got, all := wakeup+preempted, want.Woken+want.Preempted
	if got > all || all-got > want.Hidden {
		t.Errorf("thread %d: %d waits, want %d, of which %d may be hidden", w.PID, got, all, want.Hidden)
	}
	if lost := schedtest.Unobserved(res); all-got > lost {
		t.Errorf("thread %d: %d waits and %v unobserved, want %d", w.PID, got, lost, all)
	}
	if off := math.Abs(float64(preempted) - float64(want.Preempted)); off > float64(want.Hidden)+float64(all)/100 {
		t.Errorf("thread %d: %d waits by preemption, want %d", w.PID, preempted, want.Preempted)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%v lost", lost)
	}
}

// TestSpinners makes two threads compete for one CPU: each waits while the other runs. The time is
// compared with the kernel's run_delay, and with the wall time of the thread minus its CPU time. An
// emulated machine can stall between readings of two of these clocks, so one of five attempts must
// agree.
func TestSpinners(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	both := []*schedtest.Worker{schedtest.Start(t, cpu, nil), schedtest.Start(t, cpu, nil)}
	var wrong []string
	for range 5 {
		if wrong = spinners(t, both); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// spinners returns the times that do not agree.
func spinners(t *testing.T, both []*schedtest.Worker) (wrong []string) {
	t.Helper()
	args := []string{"-L", "--reasons", "--tid", strconv.Itoa(both[0].PID), "--tid", strconv.Itoa(both[1].PID)}
	want := make([]schedtest.Facts, 2)
	off := make([]time.Duration, 2)
	res := tooltest.JSON(t, Tool, args, func() {
		for i, w := range both {
			want[i] = w.Facts(t)
			w.Begin(t, "spin", 300)
		}
		for i, w := range both {
			off[i] = w.End(t)
			want[i] = w.Facts(t).Since(want[i])
		}
	})
	var all, counted uint64
	for i, w := range both {
		checkCounts(t, res, w, want[i])
		all += want[i].Woken + want[i].Preempted
		counted += waits(res, w.PID, "wakeup").count + waits(res, w.PID, "preempted").count
	}
	if lost := schedtest.Unobserved(res); counted+lost != all {
		t.Errorf("%d waits and %d unobserved, the kernel has %d", counted, lost, all)
	}
	schedtest.SteadyClock(t)
	for i, w := range both {
		got := waits(res, w.PID, "preempted")
		all := got.sum + waits(res, w.PID, "wakeup").sum
		t.Logf("thread %d waited %v in total, run_delay is %v; %v in %d waits by preemption, and was off the CPU for %v",
			w.PID, all, want[i].Wait, got.sum, got.count, off[i])
		hidden := time.Duration(want[i].Hidden) * got.max
		if !schedtest.Near(all, want[i].Wait, hidden) {
			wrong = append(wrong, fmt.Sprintf("thread %d waited %v in total, run_delay is %v", w.PID, all, want[i].Wait))
		}
		if !schedtest.Near(got.sum, off[i], hidden) {
			wrong = append(wrong, fmt.Sprintf("thread %d waited %v by preemption, but was off the CPU for %v", w.PID, got.sum, off[i]))
		}
	}
	return wrong
}

// TestPingPong counts the waits of two threads that wake each other, on one CPU and on two, with
// each attach type.
func TestPingPong(t *testing.T) {
	const trips = 5000
	all := schedtest.CPUs(t)
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "queue=raw"}) {
		for _, cpu := range []int{all[0], all[len(all)-1]} {
			t.Run(fmt.Sprintf("%s/%d-%d", attach, all[0], cpu), func(t *testing.T) {
				a, b := schedtest.Pair(t, all[0], cpu, nil)
				var want [2]schedtest.Facts
				res := tooltest.JSON(t, Tool, append(attach, "-L", "--reasons"), func() { want = schedtest.Play(t, a, b, trips) })
				for i, w := range []*schedtest.Worker{a, b} {
					checkCounts(t, res, w, want[i])
					if n := want[i].Woken + want[i].Preempted; n < trips && cpu == all[0] {
						t.Errorf("thread %d: %d waits in %d round trips", w.PID, n, trips)
					}
				}
				checkNoIdle(t, res)
			})
		}
	}
}

// checkNoIdle looks for idle tasks, which are thread 0 of each CPU.
func checkNoIdle(t *testing.T, res *tooltest.Result) {
	t.Helper()
	if len(res.Histograms) < 3 {
		t.Errorf("%d histograms without filter", len(res.Histograms))
	}
	for _, h := range res.Histograms {
		if key := h.Object("key"); key.Num("tid") == 0 {
			t.Errorf("an idle task has a histogram: %v", h)
		}
	}
}

// TestIntervals sums the reports printed during waits, with and without keys. The last report is
// printed at the end of the run.
func TestIntervals(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, keys := range [][]string{{"-L", "--reasons"}, nil} {
		a, b := schedtest.Pair(t, schedtest.CPUs(t)[0], schedtest.CPUs(t)[0], nil)
		var want [2]schedtest.Facts
		args := append(keys, "--tid", strconv.Itoa(a.PID), "0.02")
		res := tooltest.JSONReports(t, Tool, args, func(reports func() int) {
			begin := [2]schedtest.Facts{a.Facts(t), b.Facts(t)}
			for reports() < 3 && t.Context().Err() == nil {
				schedtest.Play(t, a, b, 1000)
			}
			want = [2]schedtest.Facts{a.Facts(t).Since(begin[0]), b.Facts(t).Since(begin[1])}
		})
		times := map[string]bool{}
		var all uint64
		for _, h := range res.Histograms {
			times[h.Str("time")] = true
			all += uint64(h.Num("count"))
		}
		if n := want[0].Woken + want[0].Preempted; all > n || n-all > want[0].Hidden {
			t.Errorf("%v: %d waits in %d reports, want %d", keys, all, len(times), n)
		}
		if len(times) < 3 {
			t.Errorf("%v: %d reports", keys, len(times))
		}
		if events := res.Summary.Num("events"); events != float64(all) {
			t.Errorf("%v: the summary has %v events, the reports %d", keys, events, all)
		}
	}
}
