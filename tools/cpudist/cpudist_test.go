package cpudist

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

// found sums the histograms of a thread.
func found(res *tooltest.Result, tid int) (count uint64, sum, most time.Duration) {
	for _, h := range res.Histograms {
		if int(h.Object("key").Num("tid")) == tid {
			count += uint64(h.Num("count"))
			sum += time.Duration(h.Num("sum") * 1000)
			most = max(most, time.Duration(h.Num("max")*1000))
		}
	}
	return count, sum, most
}

// TestSpinners makes two threads compete for one CPU. Each leaves the CPU as often as the kernel
// counts context switches. The time on the CPU is compared with the CPU time of the scheduler, the
// time off the CPU with the elapsed time minus CPU time. An emulated machine can stall between
// readings of two of these clocks, so one of five attempts must agree.
func TestSpinners(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	both := []*schedtest.Worker{schedtest.Start(t, cpu, nil), schedtest.Start(t, cpu, nil)}
	for _, mode := range []string{"", "--offcpu"} {
		var wrong []string
		for range 5 {
			if wrong = spinners(t, mode, both); len(wrong) == 0 {
				break
			}
		}
		if len(wrong) > 0 {
			t.Errorf("%s: %s", mode, strings.Join(wrong, "\n"))
		}
	}
}

// spinners returns the times that do not agree.
func spinners(t *testing.T, mode string, both []*schedtest.Worker) (wrong []string) {
	t.Helper()
	args := append(strings.Fields(mode), "-L", "--pid", strconv.Itoa(both[0].PID), "--pid", strconv.Itoa(both[1].PID))
	want, most := make([]schedtest.Facts, 2), make([]schedtest.Facts, 2)
	off := make([]time.Duration, 2)
	res := tooltest.JSON(t, Tool, args, func() {
		// The first time off the CPU of each thread began before the tool started.
		for i, w := range both {
			most[i] = w.Facts(t)
			w.Begin(t, "nothing", "")
			w.End(t)
			want[i] = w.Facts(t)
		}
		for _, w := range both {
			w.Begin(t, "spin", 300)
		}
		for i, w := range both {
			off[i] = w.End(t)
			want[i], most[i] = w.Facts(t).Since(want[i]), w.Facts(t).Since(most[i])
		}
	})
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%v lost", lost)
	}
	for i, w := range both {
		n, sum, longest := found(res, w.PID)
		all, atMost := want[i].Woken+want[i].Preempted, most[i].Woken+most[i].Preempted
		if n < all-min(all, want[i].Hidden) || n > atMost {
			t.Errorf("%s: thread %d: %d times, want %d to %d, of which %d may be hidden", mode, w.PID, n, all, atMost, want[i].Hidden)
		}
		t.Logf("%s: thread %d: %d times, %v in total, at most %v; the kernel has %d switches, %v on the CPU and at least %v off it",
			mode, w.PID, n, sum, longest, all, want[i].CPU, off[i])
		hidden := time.Duration(want[i].Hidden) * longest
		if mode == "" && !schedtest.Near(sum, want[i].CPU, hidden) {
			wrong = append(wrong, fmt.Sprintf("thread %d ran %v, the scheduler has %v", w.PID, sum, want[i].CPU))
		}
		if mode != "" && sum < off[i]-off[i]/20-hidden {
			wrong = append(wrong, fmt.Sprintf("thread %d was off the CPU for %v, want at least %v", w.PID, sum, off[i]))
		}
	}
	if len(wrong) > 0 {
		schedtest.SteadyClock(t)
	}
	return wrong
}

// TestPingPong compares the number of times with the context switches of two threads that wake each
// other, with each attach type.
func TestPingPong(t *testing.T) {
	const trips = 2000
	cpu := schedtest.CPUs(t)[0]
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "switch=raw"}) {
		for _, mode := range []string{"", "-O"} {
			a, b := schedtest.Pair(t, cpu, cpu, nil)
			var want [2]schedtest.Facts
			args := append(strings.Fields(mode), append(attach, "-L")...)
			res := tooltest.JSON(t, Tool, args, func() { want = schedtest.Play(t, a, b, trips) })
			for i, w := range []*schedtest.Worker{a, b} {
				n, _, _ := found(res, w.PID)
				all := want[i].Woken + want[i].Preempted
				if mode != "" {
					all-- // the first time off the CPU began before the tool started
				}
				// A read does not block if the other thread has written already.
				if n > all || all-n > want[i].Hidden || all < trips/2 {
					t.Errorf("%s %v: thread %d: %d times, want %d, of which %d may be hidden", mode, attach, w.PID, n, all, want[i].Hidden)
				}
			}
			for _, h := range res.Histograms {
				if h.Object("key").Num("tid") == 0 {
					t.Errorf("%s: an idle task has a histogram: %v", mode, h)
				}
			}
			if lost := tooltest.Lost(res.Summary); lost != 0 {
				t.Errorf("%s: %v lost", mode, lost)
			}
		}
	}
}

// TestRunning checks that a thread that runs when the tool starts has values only from its next
// switch on: the start of the first time is unknown.
func TestRunning(t *testing.T) {
	tooltest.AnyAttachType(t)
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	w.Begin(t, "spin", 500)
	var since schedtest.Facts
	before, begin := w.Facts(t), time.Now()
	res := tooltest.JSON(t, Tool, []string{"-L", "--tid", strconv.Itoa(w.PID)}, func() {
		since = w.Facts(t)
		w.End(t)
		since = w.Facts(t).Since(since)
	})
	before = w.Facts(t).Since(before)
	elapsed := time.Since(begin)
	n, sum, _ := found(res, w.PID)
	least, most := since.Woken+since.Preempted, before.Woken+before.Preempted
	if n > most || n < least-min(least, 1+since.Hidden) {
		t.Errorf("%d times of a thread that ran already, the kernel has %d to %d switches", n, least, most)
	}
	// Not compared with the CPU time of the thread, which excludes interrupts, time stolen by the
	// hypervisor and a hidden process.
	if sum > elapsed {
		t.Errorf("%v on the CPU in %v", sum, elapsed)
	}
}

// TestIdle checks that with idle tasks each CPU always runs something: the times of a CPU add up to
// the elapsed time, except before its first switch and after its last one.
func TestIdle(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	a, b := schedtest.Pair(t, cpu, cpu, nil)
	var played time.Duration
	begin := time.Now()
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-I", "--cpus", "-P"}, func() {
		at := time.Now()
		schedtest.Play(t, a, b, 500)
		time.Sleep(100 * time.Millisecond) // so that the CPU can be idle
		schedtest.Play(t, a, b, 500)
		played = time.Since(at)
	})
	var sum time.Duration
	for _, h := range res.Histograms {
		key := h.Object("key")
		if idle := key.Num("pid") == 0; idle != strings.HasPrefix(key.Str("comm"), "swapper") {
			t.Errorf("process 0 has the name of another one: %v", key)
		}
		if int(key.Num("cpu")) == cpu {
			sum += time.Duration(h.Num("sum") * 1000)
		}
	}
	if all := time.Since(begin); sum > all || sum < played*9/10 {
		t.Errorf("CPU %d ran something for %v, want %v to %v", cpu, sum, played*9/10, all)
	}
}

// TestExported checks that times on and off the CPU of a thread add up to those without exported output:
// their number is the kernel's, and exemplars are of that thread.
func TestExported(t *testing.T) {
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	for _, mode := range []string{"", "--offcpu"} {
		begin := w.Facts(t)
		var end schedtest.Facts
		run := tooltest.Export(t, Tool, append(strings.Fields(mode), "-L", "--tid", strconv.Itoa(w.PID)), func() {
			for range 50 {
				w.Begin(t, "nothing", "")
				w.End(t)
			}
			end = w.Facts(t)
		})
		most := end.Since(begin)
		var count uint64
		for _, h := range run.Histograms {
			h.CheckBuckets(t)
			h.CheckTask(t, w.PID)
			count += h.Exponential.Count
		}
		if count+run.Summary.Reasons["unobserved"]+most.Hidden < 49 || count > most.Woken+most.Preempted+1 {
			t.Errorf("%s: %d times, want 50 to %d: %+v", mode, count, most.Woken+most.Preempted, run.Summary)
		}
	}
}
