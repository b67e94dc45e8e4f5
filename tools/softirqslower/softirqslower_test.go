package softirqslower

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// run runs the tool while datagrams are sent, and counts the rows of each softirq by stage.
func run(t *testing.T, args ...string) (res *tooltest.Result, bounds *tooltest.Bounds[string], raised, ran map[string]int) {
	t.Helper()
	bounds = tooltest.NewBounds(func() map[string]int { return tooltest.Softirqs(t) })
	res = tooltest.JSONUndisturbed(t, Tool, args, func() {
		bounds.During(func() {
			if err := tooltest.Datagrams(200); err != nil {
				t.Error(err)
			}
		})
	})
	bounds.Close()
	raised, ran = map[string]int{}, map[string]int{}
	for _, e := range res.Events {
		if e.Str("stage") == "run" {
			ran[e.Str("softirq")]++
		} else {
			raised[e.Str("softirq")]++
		}
	}
	return res, bounds, raised, ran
}

// TestAll compares the number of rows without a minimum with /proc/softirqs. A softirq that was
// raised before the tool started has no row of that stage.
func TestAll(t *testing.T) {
	begin := time.Now()
	res, bounds, raised, ran := run(t, "0")
	for name := range tooltest.Softirqs(t) {
		least, most := bounds.Of(name)
		if n := ran[name]; n < least || n > most {
			t.Errorf("softirq %s: %d runs, want %d to %d", name, n, least, most)
		}
		if n := raised[name]; n < least-runtime.NumCPU() || n > most {
			t.Errorf("softirq %s: raised %d times, want %d to %d", name, n, least-runtime.NumCPU(), most)
		}
		t.Logf("softirq %s: %d runs, raised %d times, the kernel has %d to %d", name, ran[name], raised[name], least, most)
	}
	if least, _ := bounds.Of("net_rx"); least == 0 {
		t.Error("no run of net_rx during the load")
	}
	limit := float64(time.Since(begin))
	for _, e := range res.Events {
		if ns := e.Num("delta_ns"); ns <= 0 || ns > limit || int(e.Num("cpu")) >= runtime.NumCPU() {
			t.Errorf("time within %v ns: %v", limit, e)
		}
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost: %v", lost, res.Summary)
	}
}

func TestMinimum(t *testing.T) {
	tooltest.AnyAttachType(t)
	res, _, _, _ := run(t, "20", "-c", "0")
	for _, e := range res.Events {
		if e.Num("delta_ns") < 20_000 || e.Num("cpu") != 0 {
			t.Errorf("row %v", e)
		}
	}
	if res, _, _, _ := run(t, "1h"); len(res.Events) > 0 {
		t.Errorf("rows of 1 h: %v", res.Events)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"--min", "0"}, func() { _ = tooltest.Datagrams(10) })
	if header, _, _ := strings.Cut(out, "\n"); strings.Join(strings.Fields(header), " ") != "TIME STAGE SOFTIRQ LAT(us) CPU COMM" {
		t.Errorf("header is %q", header)
	}
}

// TestRaisedTwice runs the programs with BPF_PROG_TEST_RUN for a softirq that is raised twice before
// it runs: it is raised since the first time.
func TestRaisedTwice(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tooltest.LoadPrograms(t, loadBpf, nil, "raise__raw", "softirq__raw__start")
	tooltest.PinThread(t) // the state belongs to a CPU
	const timer = 1
	raised := func() (ns uint64) {
		var cpus []struct {
			RaisedNs, BeginNs, IRQNs, Task uint64
			Begun, NoEnd, NoBegin, _       uint32
		}
		if err := p.Maps["softirq_runs"].Lookup(uint32(timer), &cpus); err != nil {
			t.Fatal(err)
		}
		for _, cpu := range cpus {
			ns += cpu.RaisedNs
		}
		return ns
	}
	p.Run("raise__raw", timer)
	first := raised()
	p.Run("raise__raw", timer)
	if again := raised(); first == 0 || again != first {
		t.Errorf("raised at %d, and at %d after another raise", first, again)
	}
	p.Run("softirq__raw__start", timer)
	if n := raised(); n != 0 {
		t.Errorf("still raised at %d after the start", n)
	}
}
