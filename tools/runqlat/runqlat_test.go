package runqlat

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

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

// checkCounts compares with the counters of the kernel, which must be equal except for hidden
// tasks. By reason there is one more difference: the kernel counts a task that is woken while it is
// about to sleep, and still loses the CPU, as a voluntary switch.
func checkCounts(t *testing.T, res *tooltest.Result, w *worker, want facts) {
	t.Helper()
	wakeup, preempted := waits(res, w.pid, "wakeup").count, waits(res, w.pid, "preempted").count
	got, all := wakeup+preempted, want.wakeup+want.preempted
	if got > all || all-got > want.hidden {
		t.Errorf("thread %d: %d waits, want %d, of which %d may be hidden", w.pid, got, all, want.hidden)
	}
	if off := math.Abs(float64(preempted) - float64(want.preempted)); off > float64(want.hidden)+float64(all)/100 {
		t.Errorf("thread %d: %d waits by preemption, want %d", w.pid, preempted, want.preempted)
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
	cpu := cpus(t)[0]
	both := []*worker{start(t, cpu, nil), start(t, cpu, nil)}
	var wrong []string
	for range 5 {
		if wrong = spinners(t, both); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// spinners returns the times that do not agree.
func spinners(t *testing.T, both []*worker) (wrong []string) {
	t.Helper()
	args := []string{"-L", "--reasons", "--pid", strconv.Itoa(both[0].pid), "--pid", strconv.Itoa(both[1].pid)}
	want := make([]facts, 2)
	off := make([]time.Duration, 2)
	res := tooltest.JSON(t, Tool, args, func() {
		for i, w := range both {
			want[i] = w.facts(t)
			w.begin(t, "spin", 300)
		}
		for i, w := range both {
			off[i] = w.end(t)
			want[i] = w.facts(t).since(want[i])
		}
	})
	for i, w := range both {
		checkCounts(t, res, w, want[i])
	}
	steadyClock(t)
	for i, w := range both {
		got := waits(res, w.pid, "preempted")
		all := got.sum + waits(res, w.pid, "wakeup").sum
		t.Logf("thread %d waited %v in total, run_delay is %v; %v in %d waits by preemption, and was off the CPU for %v",
			w.pid, all, want[i].wait, got.sum, got.count, off[i])
		hidden := time.Duration(want[i].hidden) * got.max
		if !near(all, want[i].wait, hidden) {
			wrong = append(wrong, fmt.Sprintf("thread %d waited %v in total, run_delay is %v", w.pid, all, want[i].wait))
		}
		if !near(got.sum, off[i], hidden) {
			wrong = append(wrong, fmt.Sprintf("thread %d waited %v by preemption, but was off the CPU for %v", w.pid, got.sum, off[i]))
		}
	}
	return wrong
}

// steadyClock skips the rest if the clock of the scheduler, which run_delay and CPU time use,
// advances only in jumps, as on emulated machines.
func steadyClock(t *testing.T) {
	t.Helper()
	name, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		t.Fatal(err)
	}
	switch source := strings.TrimSpace(string(name)); source {
	case "hpet", "acpi_pm", "refined-jiffies", "jiffies":
		t.Skipf("counts compared, times not: the clock source is %s", source)
	}
}

// near reports whether two times are equal within 5 % and the hidden time.
func near(got, want, hidden time.Duration) bool {
	return got <= want+want/20 && got >= want-want/20-hidden
}

// TestPingPong counts the waits of two threads that wake each other, on one CPU and on two, with
// each attach type.
func TestPingPong(t *testing.T) {
	const trips = 5000
	all := cpus(t)
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "queue=raw"}) {
		for _, cpu := range []int{all[0], all[len(all)-1]} {
			t.Run(fmt.Sprintf("%s/%d-%d", attach, all[0], cpu), func(t *testing.T) {
				a, b := pair(t, all[0], cpu, nil)
				var want [2]facts
				res := tooltest.JSON(t, Tool, append(attach, "-L", "--reasons"), func() { want = play(t, a, b, trips) })
				for i, w := range []*worker{a, b} {
					checkCounts(t, res, w, want[i])
					if n := want[i].wakeup + want[i].preempted; n < trips && cpu == all[0] {
						t.Errorf("thread %d: %d waits in %d round trips", w.pid, n, trips)
					}
				}
				checkNoIdle(t, res)
			})
		}
	}
}

// play makes a and b play ping-pong and returns the counters of the kernel.
func play(t testing.TB, a, b *worker, trips int) [2]facts {
	t.Helper()
	begin := [2]facts{a.facts(t), b.facts(t)}
	b.begin(t, "pong", trips)
	a.begin(t, "ping", trips)
	a.end(t)
	b.end(t)
	return [2]facts{a.facts(t).since(begin[0]), b.facts(t).since(begin[1])}
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
		a, b := pair(t, cpus(t)[0], cpus(t)[0], nil)
		var want [2]facts
		args := append(keys, "--tid", strconv.Itoa(a.pid), "0.02")
		res := tooltest.JSONReports(t, Tool, args, func(reports func() int) {
			begin := [2]facts{a.facts(t), b.facts(t)}
			for reports() < 3 && t.Context().Err() == nil {
				play(t, a, b, 1000)
			}
			want = [2]facts{a.facts(t).since(begin[0]), b.facts(t).since(begin[1])}
		})
		times := map[string]bool{}
		var all uint64
		for _, h := range res.Histograms {
			times[h.Str("time")] = true
			all += uint64(h.Num("count"))
		}
		if n := want[0].wakeup + want[0].preempted; all > n || n-all > want[0].hidden {
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
