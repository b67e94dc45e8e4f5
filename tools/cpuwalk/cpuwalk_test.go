package cpuwalk

import (
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/schedtest"
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
			if p := 100 * r.Num("count") / r.Num("samples"); r.Num("busy_percent") != p {
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
