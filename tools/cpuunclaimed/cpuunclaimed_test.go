package cpuunclaimed

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// online counts the online CPUs in /proc/stat.
func online(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "cpu") && !strings.HasPrefix(line, "cpu ") {
			n++
		}
	}
	return n
}

// TestCrowd binds more threads to one CPU than there are CPUs. While all of them are runnable, every
// idle CPU is unclaimed, whatever else the machine does: busy and unclaimed CPUs are all CPUs. Each
// report that lies within that time shows it.
func TestCrowd(t *testing.T) {
	cpu, n := schedtest.CPUs(t)[0], online(t)
	var all []*schedtest.Worker
	for range n + 1 {
		all = append(all, schedtest.Start(t, cpu, nil))
	}
	// A report can have samples from shortly before its interval, if the tool is interrupted.
	const margin = 100 * time.Millisecond
	checked := 0
	for attempt := 0; attempt < 5 && checked == 0; attempt++ {
		var begin, end time.Time
		res := tooltest.JSON(t, Tool, []string{"-f", "199", "0.1"}, func() { begin, end, _ = schedtest.Spin(t, all, 500*time.Millisecond) })
		for _, r := range res.Rows {
			if got := r.Num("cpus"); r.Num("samples") > 0 && got != float64(n) {
				t.Errorf("%v online CPUs, want %d: %v", got, n, r)
			}
			at := schedtest.Time(t, r)
			if at.Add(-time.Duration(r.Num("interval_ns"))).Before(begin.Add(margin)) || at.After(end) || r.Num("samples") == 0 {
				continue
			}
			checked++
			if sum := r.Num("cpu_percent") + r.Num("unclaimed_idle_percent"); math.Abs(sum-100) > 1e-9 {
				t.Errorf("busy and unclaimed CPUs are %v %%, want 100: %v", sum, r)
			}
			if r.Num("waiting") < float64(n) {
				t.Errorf("%v tasks wait, want at least %d: %v", r.Num("waiting"), n, r)
			}
		}
	}
	if checked == 0 {
		t.Error("no report within the time in which all threads are runnable")
	}
}

// TestBusy compares the share of busy CPUs with the idle time of /proc/stat, and checks that CPUs are
// unclaimed only while a task waits.
func TestBusy(t *testing.T) {
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	var idle float64
	var waited, length time.Duration
	res := tooltest.JSON(t, Tool, []string{"-f", "499", "100"}, func() {
		before, at := idleTicks(t), time.Now()
		waited -= schedtest.Pressure(t)
		w.Begin(t, "spin", 1500)
		w.End(t)
		idle, length = idleTicks(t)-before, time.Since(at)
		waited += schedtest.Pressure(t)
	})
	const hz = 100 // USER_HZ
	want := 100 - 100*idle/hz/length.Seconds()/float64(online(t))
	got := res.Rows[0].Num("cpu_percent")
	t.Logf("%.1f %% busy in %v samples, /proc/stat has %.1f %%", got, res.Rows[0].Num("samples"), want)
	if math.Abs(got-want) > 15 {
		t.Errorf("%.1f %% busy, /proc/stat has %.1f %%", got, want)
	}
	unclaimed, pressure := res.Rows[0].Num("unclaimed_idle_percent"), 100*waited.Seconds()/length.Seconds()
	t.Logf("%.1f %% unclaimed, the pressure is %.1f %%", unclaimed, pressure)
	if unclaimed < 0 || unclaimed > 100-got+1e-9 {
		t.Errorf("%.1f %% unclaimed of %.1f %% idle", unclaimed, 100-got)
	}
	// With two CPUs, half of them can be unclaimed, while a task waits for the other one.
	if online(t) == 2 && unclaimed > pressure+10 {
		t.Errorf("%.1f %% unclaimed, but the pressure is %.1f %%", unclaimed, pressure)
	}
}

// idleTicks is the time that all CPUs were idle, in units of 1/100 s.
func idleTicks(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, nice, system, idle, wait float64
	if _, err := fmt.Sscanf(string(text), "cpu %f %f %f %f %f", &user, &nice, &system, &idle, &wait); err != nil {
		t.Fatal(err)
	}
	return idle + wait
}

// TestText checks the columns of text output.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"-T", "0.1", "2"}, nil)
	head, _, _ := strings.Cut(out, "\n")
	if strings.Join(strings.Fields(head), " ") != "TIME %CPU UNCLAIMED" || strings.Count(out, "\n") != 3 {
		t.Errorf("text is %s", out)
	}
}
