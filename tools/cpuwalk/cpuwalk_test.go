package cpuwalk

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { schedtest.Main(m) }

// TestOneCPU counts the samples of a thread that is bound to a CPU, and compares with the same timer
// in a program of the test.
func TestOneCPU(t *testing.T) {
	const hz = 199
	for _, cpu := range schedtest.CPUs(t) {
		w := schedtest.Start(t, cpu, nil)
		var want int
		res := tooltest.JSON(t, Tool, []string{"-f", strconv.Itoa(hz), "--tid", strconv.Itoa(w.PID)}, func() {
			stop := tooltest.Samples(t, w.PID, hz)
			w.Begin(t, "spin", 500)
			w.End(t)
			want = stop()
		})
		var samples []float64
		for _, r := range res.Rows {
			samples = append(samples, r.Num("samples"))
			n := int(r.Num("count"))
			if int(r.Num("cpu")) != cpu {
				if n > 0 {
					t.Errorf("a thread on CPU %d has samples of another one: %v", cpu, r)
				}
				continue
			}
			t.Logf("CPU %d: %d samples of the thread, the test has %d", cpu, n, want)
			// The timers expire at other times: per time slice, the counts differ by at most one.
			if n == 0 || n < want/2-3 || n > 2*want+3 {
				t.Errorf("%d samples of the thread, the test has %d", n, want)
			}
			// On a busy machine samples are missed. Those that were missed while the CPU was not idle
			// count in proportion (TestPercent).
			p := 100 * r.Num("count") / r.Num("samples")
			if busy := r.Num("busy_percent"); busy < p-1e-9 || busy > 100+1e-9 || r.Num("missed") == 0 && busy != p {
				t.Errorf("busy_percent of %v, want %v", r, p)
			}
		}
		if len(samples) < len(schedtest.CPUs(t)) {
			t.Errorf("samples of CPUs are %v, want at least those of %v", samples, schedtest.CPUs(t))
		}
	}
}

// TestText checks that rows are sorted by CPU.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	out := tooltest.Text(t, Tool, nil, func() {
		w.Begin(t, "spin", 200)
		w.End(t)
	})
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "CPU COUNT SAMPLES BUSY" || !strings.HasPrefix(lines[2], "0 ") {
		t.Errorf("text is %s", out)
	}
}

// TestPercent checks the share of busy time with samples that were not taken.
func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		counts
		want float64
	}{
		{counts{Samples: 100, Idle: 100}, 0},
		{counts{Samples: 100, Busy: 50, Idle: 50}, 50},
		{counts{Samples: 100, Busy: 25, Idle: 50}, 25},            // with a task filter
		{counts{Samples: 75, Busy: 25, Idle: 50, Missed: 25}, 50}, // half of the busy samples
		{counts{Samples: 45, Busy: 45, Missed: 55}, 100},          // a high frequency
		{counts{Samples: 50, Idle: 50, Missed: 50}, math.NaN()},   // it is unknown which tasks ran
		{counts{}, math.NaN()},
	} {
		if got := float64(tt.percent()); got != tt.want && !(math.IsNaN(got) && math.IsNaN(tt.want)) {
			t.Errorf("%+v: %v %%, want %v", tt.counts, got, tt.want)
		}
	}
}

// TestHighFrequency checks that samples which were due and not taken are lost, and that a busy CPU is
// busy nevertheless.
func TestHighFrequency(t *testing.T) {
	const hz, spin = 100000, 500
	if limit := system.MaxSampleRate("/"); limit < hz {
		t.Skipf("kernel.perf_event_max_sample_rate is %d", limit)
	}
	cpu := schedtest.CPUs(t)[0]
	w := schedtest.Start(t, cpu, nil)
	start := time.Now()
	res := tooltest.JSON(t, Tool, []string{"-f", strconv.Itoa(hz), "--filter", fmt.Sprint("cpu == ", cpu)}, func() {
		w.Begin(t, "spin", spin)
		w.End(t)
	})
	r := res.Rows[0]
	missed := r.Num("missed")
	// At this frequency, the machine can have little time for anything else: between two readings of
	// the clock in the tool, more than 100 ms can pass. The load and the test give exact limits.
	least, most := hz*spin/1e3-1, hz*time.Since(start).Seconds()
	if all := r.Num("samples") + missed; all < least || all > most {
		t.Errorf("%v samples and %v missed, %v to %.0f were due", r.Num("samples"), missed, least, most)
	}
	if lost := schedtest.Unobserved(res); float64(lost) < missed {
		t.Errorf("%v missed, %v lost", missed, lost)
	}
	if busy := 100 * spin * 1e6 / r.Num("interval_ns"); r.Num("busy_percent") < 0.9*busy || r.Num("busy_percent") > 100 {
		t.Errorf("%v %% busy, want at least %.0f", r.Num("busy_percent"), busy)
	}
}
