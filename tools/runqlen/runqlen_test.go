package runqlen

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

const spinners = 4

// crowd starts four threads on one CPU. Each is in a cgroup of its own: the kernel keeps their tasks
// in separate queues.
func crowd(t *testing.T, cpu int) (all []*schedtest.Worker) {
	t.Helper()
	for i := range spinners {
		dir := tooltest.Cgroup(t, "cgroup2", fmt.Sprintf("corescope-runqlen-%d-%d", os.Getpid(), i))
		all = append(all, schedtest.Start(t, cpu, func(cmd *exec.Cmd) *exec.Cmd { return tooltest.InCgroup(dir, cmd.Args...) }))
	}
	return all
}

// TestLength makes four threads use one CPU: while all of them are runnable, three wait. Other tasks
// of the machine can only add to that. If these use less than 5 % of the CPU, they are not always
// there, so the smallest length of one of several reports is three. On a slow machine the reports are
// further apart, so the time is doubled until one lies within it. A thread that blocks meanwhile does not
// wait for the CPU: with a smaller length then, the time is doubled too.
func TestLength(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	all := crowd(t, cpu)
	for spin := 500 * time.Millisecond; spin <= 16*time.Second; spin *= 2 {
		least, share, blocked := lengths(t, cpu, all, spin)
		t.Logf("smallest lengths of the reports are %v, the threads used %.0f %% of the CPU, and blocked %d times", least, 100*share, blocked)
		isSmall := slices.ContainsFunc(least, func(n float64) bool { return n < spinners-1 })
		if isSmall && blocked > 0 {
			continue
		}
		if isSmall {
			t.Errorf("a length is less than %d", spinners-1)
		}
		if share > 0.95 && len(least) > 0 && !slices.Contains(least, spinners-1) {
			t.Errorf("no length is %d", spinners-1)
		}
		if len(least) > 0 {
			return
		}
	}
	t.Error("no report lies within the time in which all threads are runnable")
}

// lengths returns the smallest length of each report that lies within the time in which all threads
// are runnable, the share of the CPU that the threads used, and how often they blocked in that time.
func lengths(t *testing.T, cpu int, all []*schedtest.Worker, spin time.Duration) (least []float64, share float64, blocked uint64) {
	t.Helper()
	const hz = 499
	var begin, end time.Time
	var used time.Duration
	at := time.Now()
	res := tooltest.JSON(t, Tool, []string{"-C", "-f", strconv.Itoa(hz), "0.05"}, func() {
		for _, w := range all {
			used -= w.Facts(t).CPU
		}
		begin, end, blocked = schedtest.Spin(t, all, spin)
		share = time.Since(begin).Seconds()
		for _, w := range all {
			used += w.Facts(t).CPU
		}
	})
	share = used.Seconds() / share
	var samples float64
	times := []time.Time{end, end} // of the two reports before: the interval began between them
	for _, h := range res.Histograms {
		if int(h.Object("key").Num("cpu")) != cpu {
			continue
		}
		samples += h.Num("count")
		times = append(times, schedtest.Time(t, h))
		if n := len(times); h.Num("count") > 0 && times[n-3].After(begin) && times[n-1].Before(end) && times[n-3].Before(end) {
			least = append(least, h.Num("min"))
		}
	}
	if most := hz * time.Since(at).Seconds(); samples > 1.2*most {
		t.Errorf("%v samples of a CPU, want at most %v", samples, most)
	}
	return least, share, blocked
}

// TestOccupancy checks that a task waits for the CPU of the crowd in most samples, and that samples
// of all CPUs are the sum of those of each.
func TestOccupancy(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	crowd := crowd(t, cpu)
	var one *tooltest.Result
	all := tooltest.JSON(t, Tool, []string{"-O"}, func() {
		one = tooltest.JSON(t, Tool, []string{"-O", "-C"}, func() { schedtest.Spin(t, crowd, 300*time.Millisecond) })
	})
	var samples, queued float64
	for _, r := range one.Rows {
		samples, queued = samples+r.Num("samples"), queued+r.Num("queued")
		if want := 100 * r.Num("queued") / r.Num("samples"); r.Num("occupancy_percent") != want {
			t.Errorf("occupancy of %v, want %v", r, want)
		}
		if int(r.Num("cpu")) == cpu && r.Num("occupancy_percent") < 60 {
			t.Errorf("the crowd waits in few samples: %v", r)
		}
	}
	if len(all.Rows) != 1 || all.Rows[0].Num("samples") < samples || all.Rows[0].Num("queued") < queued*0.9 {
		t.Errorf("%v of all CPUs, want at least %v samples, %v queued", all.Rows, samples, queued)
	}
}

// TestPressure runs a thread on each CPU, so that no CPU is idle, and compares the occupancy of all
// CPUs with the share of time in which a task waited for a CPU, which the kernel measures. In an
// emulated machine on a busy host, timers of samples expire together with those that wake tasks, so
// that more samples have a waiting task. So one of five attempts must agree, each twice as long.
func TestPressure(t *testing.T) {
	var all []*schedtest.Worker
	for _, cpu := range schedtest.CPUs(t) {
		all = append(all, schedtest.Start(t, cpu, nil))
	}
	for spin := 500 * time.Millisecond; spin <= 8*time.Second; spin *= 2 {
		got, want := pressure(t, all, spin)
		t.Logf("a task waits in %.1f %% of the samples, the pressure is %.1f %%", got, want)
		if math.Abs(got-want) <= 15 {
			return
		}
	}
	t.Error("the samples with a waiting task do not agree with the pressure")
}

// pressure returns the percentage of samples with a waiting task, and that of the time.
func pressure(t *testing.T, all []*schedtest.Worker, spin time.Duration) (got, want float64) {
	t.Helper()
	res := tooltest.JSON(t, Tool, []string{"-O", "-f", "499"}, func() {
		before, at := schedtest.Pressure(t), time.Now()
		schedtest.Spin(t, all, spin)
		want = 100 * (schedtest.Pressure(t) - before).Seconds() / time.Since(at).Seconds()
	})
	return res.Rows[0].Num("occupancy_percent"), want
}

// TestText checks the layout of libbpf-tools.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	all := crowd(t, schedtest.CPUs(t)[0])
	load := func() { schedtest.Spin(t, all, 200*time.Millisecond) }
	out := tooltest.Text(t, Tool, nil, load)
	if !regexp.MustCompile(`^\n     runqlen       : count    distribution\n        0          : \d+ +\|\** *\|\n        1          : `).MatchString(out) {
		t.Errorf("text is %q", out)
	}
	out = tooltest.Text(t, Tool, []string{"-O", "-C"}, load)
	if !regexp.MustCompile(`(?m)^CPU +RUNQOCC +SAMPLES +QUEUED *\n *\d+ +\d+\.\d\d% `).MatchString(out) {
		t.Errorf("text is %q", out)
	}
}
