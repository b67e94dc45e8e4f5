package softirqs

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// run runs the tool while datagrams are sent.
func run(t *testing.T, args ...string) (*tooltest.Result, *tooltest.Bounds[string]) {
	t.Helper()
	bounds := tooltest.NewBounds(func() map[string]int { return tooltest.Softirqs(t) })
	res := tooltest.JSONUndisturbed(t, Tool, args, func() {
		bounds.During(func() {
			if err := tooltest.Datagrams(500); err != nil {
				t.Error(err)
			}
		})
	})
	bounds.Close()
	return res, bounds
}

// checkCounts compares with /proc/softirqs.
func checkCounts(t *testing.T, counts map[string]int, bounds *tooltest.Bounds[string]) {
	t.Helper()
	for name := range tooltest.Softirqs(t) {
		least, most := bounds.Of(name)
		if n := counts[name]; n < least || n > most {
			t.Errorf("softirq %s: %d runs, want %d to %d", name, n, least, most)
		}
		t.Logf("softirq %s: %d runs, the kernel has %d to %d", name, counts[name], least, most)
		delete(counts, name)
	}
	if least, _ := bounds.Of("net_rx"); least == 0 || len(counts) > 0 {
		t.Errorf("%d runs of net_rx during the load; unknown softirqs %v", least, counts)
	}
}

func TestCounts(t *testing.T) {
	begin := time.Now()
	res, bounds := run(t)
	limit := float64(time.Since(begin)) * float64(runtime.NumCPU())
	counts := map[string]int{}
	for _, r := range res.Rows {
		n, total, longest := r.Num("count"), r.Num("total_ns"), r.Num("max_ns")
		counts[r.Str("softirq")] += int(n)
		if total <= 0 || total+r.Num("irq_ns") > limit || longest > total || longest*n < total || r.Num("avg_ns") > longest || r.Has("cpu") {
			t.Errorf("times within %v ns: %v", limit, r)
		}
	}
	checkCounts(t, counts, bounds)
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost: %v", lost, res.Summary)
	}
}

// TestDistributed compares histograms by CPU with the same counts.
func TestDistributed(t *testing.T) {
	res, bounds := run(t, "-d", "--per-cpu", "-N")
	counts := map[string]int{}
	for _, h := range res.Histograms {
		key := h.Object("key")
		counts[key.Str("softirq")] += int(h.Num("count"))
		if h.Str("unit") != "nsecs" || !key.Has("cpu") {
			t.Errorf("histogram %v", h)
		}
	}
	checkCounts(t, counts, bounds)
}

func TestCPU(t *testing.T) {
	tooltest.AnyAttachType(t)
	res, _ := run(t, "--per-cpu", "-c", "0")
	for _, r := range res.Rows {
		if !r.Has("cpu") || r.Num("cpu") != 0 {
			t.Errorf("row of another CPU: %v", r)
		}
	}
	if len(res.Rows) == 0 {
		t.Error("no softirq on CPU 0")
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	for args, want := range map[string]string{
		"":             "SOFTIRQ TOTAL_usecs",
		"-C -N":        "SOFTIRQ TOTAL_nsecs TOTAL_count",
		"--per-cpu -C": "SOFTIRQ CPU TOTAL_usecs TOTAL_count",
	} {
		out := tooltest.Text(t, Tool, strings.Fields(args), func() { _ = tooltest.Datagrams(10) })
		lines := strings.Split(out, "\n")
		if len(lines) < 2 || strings.Join(strings.Fields(lines[1]), " ") != want {
			t.Errorf("%s: %q, want %q", args, lines, want)
		}
	}
}

// TestInterrupted runs the programs with BPF_PROG_TEST_RUN for a softirq that an interrupt handler
// interrupts. The time of the handler is not part of the softirq.
func TestInterrupted(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tooltest.LoadPrograms(t, loadBpf, nil, "handler__raw__start", "handler__raw__done", "softirq__raw__start", "softirq__raw__done")
	tooltest.PinThread(t) // the state belongs to a CPU
	const action, handled, timer = 0x1000, 1, 1
	begin := time.Now()
	p.Run("softirq__raw__done", timer) // its begin was before the first observed one
	p.Run("softirq__raw__start", timer)
	p.Run("handler__raw__start", 7, action)
	handlerBegin := time.Now()
	time.Sleep(20 * time.Millisecond)
	slept := time.Since(handlerBegin)
	p.Run("handler__raw__done", 7, action, handled)
	p.Run("softirq__raw__done", timer)
	all := time.Since(begin)
	var entry struct {
		Key  key
		_, _ uint32
	}
	var c struct{ Count, TotalNs, IRQNs, MaxNs uint64 }
	if it := p.Maps["table"].Iterate(); !it.Next(&entry, &c) {
		t.Fatal("no entry in the table")
	}
	own, irq := time.Duration(c.TotalNs), time.Duration(c.IRQNs)
	if c.Count != 1 || entry.Key.Vec != timer || irq < slept || own <= 0 || own > all-slept || own+irq > all || c.MaxNs != c.TotalNs {
		t.Errorf("%+v, of %v in total, %v of it asleep in the handler", c, all, slept)
	}
	if n := p.Unobserved(); n != 0 {
		t.Errorf("%d lost, want 0", n)
	}
	p.Run("softirq__raw__start", timer)
	p.Run("softirq__raw__start", timer) // the end was not observed
	p.Run("softirq__raw__done", timer)
	p.Run("softirq__raw__done", timer) // the begin was not observed
	p.Run("softirq__raw__start", timer)
	if n := p.Unobserved(); n != 2 {
		t.Errorf("%d lost, want 2: an end and a begin that were not observed", n)
	}
}

// TestUsage combines histograms with options of tables.
func TestUsage(t *testing.T) {
	for _, option := range []string{"--sort=count", "--rows=3"} {
		tooltest.Fails(t, Tool, []string{"-d", option}, tool.ExitUsage, "they apply to tables")
	}
}

// TestFilterExcludesAll checks that a run reports histograms that --filter excludes.
func TestFilterExcludesAll(t *testing.T) {
	res, _ := run(t, "-d", "--filter", "p99 < 0")
	if len(res.Rows) != 0 || res.Summary["events"] != 0.0 || !strings.Contains(res.Stderr, "no output: filters excluded ") {
		t.Errorf("%d rows, summary %v, messages:\n%s", len(res.Rows), res.Summary, res.Stderr)
	}
}
