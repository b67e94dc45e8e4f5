package hardirqs

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// run runs the tool while disks are read.
func run(t *testing.T, args ...string) (*tooltest.Result, *tooltest.Bounds[int]) {
	t.Helper()
	bounds := tooltest.NewBounds(func() map[int]int { return tooltest.IRQs(t) })
	res := tooltest.JSONUndisturbed(t, Tool, args, func() {
		bounds.During(func() { tooltest.Interrupt(t, 8) })
	})
	bounds.Close()
	return res, bounds
}

// checkCounts compares the runs of handlers with /proc/interrupts, for interrupts with one handler.
func checkCounts(t *testing.T, counts map[int]int, bounds *tooltest.Bounds[int]) {
	t.Helper()
	all := 0
	for irq, handlers := range tooltest.IRQHandlers(t) {
		least, most := bounds.Of(irq)
		if strings.Contains(handlers, ", ") || most == 0 {
			continue
		}
		if n := counts[irq]; n < least || n > most {
			t.Errorf("interrupt %d (%s): %d runs, want %d to %d", irq, handlers, n, least, most)
		}
		t.Logf("interrupt %d (%s): %d runs, the kernel has %d to %d", irq, handlers, counts[irq], least, most)
		all += least
	}
	if all == 0 {
		t.Error("no interrupt with a single handler during the load")
	}
}

func TestCounts(t *testing.T) {
	begin := time.Now()
	res, bounds := run(t)
	limit := float64(time.Since(begin)) * float64(runtime.NumCPU())
	counts := map[int]int{}
	handlers := tooltest.IRQHandlers(t)
	for _, r := range res.Rows {
		n, total, longest := r.Num("count"), r.Num("total_ns"), r.Num("max_ns")
		counts[int(r.Num("irq"))] += int(n)
		if total <= 0 || total > limit || longest > total || longest*n < total || r.Num("avg_ns") > longest || r.Has("cpu") {
			t.Errorf("times within %v ns: %v", limit, r)
		}
		if name := r.Str("hardirq"); name == "IPI" && runtime.GOARCH == "arm64" {
			continue // /proc/interrupts lists them by kind, without the number
		} else if name == "" || !strings.Contains(handlers[int(r.Num("irq"))], name) {
			t.Errorf("interrupt %v has no handler %q", r.Num("irq"), name)
		}
	}
	checkCounts(t, counts, bounds)
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost: %v", lost, res.Summary)
	}
}

// TestDistributed compares histograms by CPU, and --cpu, with the same counts.
func TestDistributed(t *testing.T) {
	res, bounds := run(t, "-d", "-C", "-N")
	counts := map[int]int{}
	for _, h := range res.Histograms {
		key := h.Object("key")
		counts[int(key.Num("irq"))] += int(h.Num("count"))
		if h.Str("unit") != "nsecs" || !key.Has("cpu") || key.Str("hardirq") == "" {
			t.Errorf("histogram %v", h)
		}
	}
	checkCounts(t, counts, bounds)
}

// TestCPU checks that the rows of the CPUs are separate, and those of -s only of that CPU.
func TestCPU(t *testing.T) {
	tooltest.AnyAttachType(t)
	res, _ := run(t, "--per-cpu")
	for _, r := range res.Rows {
		if !r.Has("cpu") || int(r.Num("cpu")) >= runtime.NumCPU() {
			t.Errorf("row %v", r)
		}
	}
	res, _ = run(t, "--per-cpu", "-s", "0")
	for _, r := range res.Rows {
		if r.Num("cpu") != 0 {
			t.Errorf("row of another CPU: %v", r)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	for args, want := range map[string]string{
		"":         "HARDIRQ IRQ TOTAL_count TOTAL_usecs MAX_usecs",
		"-C -N":    "HARDIRQ IRQ CPU TOTAL_count TOTAL_nsecs MAX_nsecs",
		"--count":  "HARDIRQ IRQ TOTAL_count",
		"--dist=0": "HARDIRQ IRQ TOTAL_count TOTAL_usecs MAX_usecs",
	} {
		out := tooltest.Text(t, Tool, strings.Fields(args), func() { tooltest.Interrupt(t, 1) })
		lines := strings.Split(out, "\n")
		if len(lines) < 2 || strings.Join(strings.Fields(lines[1]), " ") != want {
			t.Errorf("%s: %q, want %q", args, lines, want)
		}
	}
}

// TestNested runs the programs with BPF_PROG_TEST_RUN for a handler that runs another one. The time
// of the inner one is not part of the outer one.
func TestNested(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tooltest.LoadPrograms(t, loadBpf, nil, "handler__raw__start", "handler__raw__done")
	tooltest.PinThread(t)                           // the state belongs to a CPU
	const outer, inner, handled = 0x1000, 0x2000, 1 // addresses that are not mapped: handlers without a name
	begin := time.Now()
	p.Run("handler__raw__done", 7, outer, handled) // its begin was before the first observed one
	p.Run("handler__raw__start", 7, outer)
	p.Run("handler__raw__start", 8, inner)
	innerBegin := time.Now()
	time.Sleep(20 * time.Millisecond)
	slept := time.Since(innerBegin)
	p.Run("handler__raw__done", 8, inner, handled)
	p.Run("handler__raw__done", 7, outer, handled)
	all := time.Since(begin)
	if n := p.Unobserved(); n != 0 {
		t.Errorf("%d lost, want 0", n)
	}
	times := totals(t, p)
	if times[8] < slept || times[8] > all || times[7] <= 0 || times[7] > all-slept {
		t.Errorf("outer %v and inner %v, of %v in total, %v of it asleep in the inner one", times[7], times[8], all, slept)
	}
	p.Run("handler__raw__start", 7, outer)
	p.Run("handler__raw__start", 7, outer) // the end was not observed
	p.Run("handler__raw__done", 8, inner, handled)
	p.Run("handler__raw__start", 8, inner)
	if n := p.Unobserved(); n != 2 {
		t.Errorf("%d lost, want 2: an end and a begin that were not observed", n)
	}
}

// totals returns the times in the table, by interrupt.
func totals(t *testing.T, p *tooltest.Programs) map[uint32]time.Duration {
	t.Helper()
	all := map[uint32]time.Duration{}
	var entry struct {
		Key  key
		_, _ uint32
	}
	var c struct{ Count, TotalNs, Unhandled, Woken, MaxNs uint64 }
	for it := p.Maps["table"].Iterate(); it.Next(&entry, &c); {
		all[entry.Key.IRQ] += time.Duration(c.TotalNs)
	}
	return all
}

// TestUsage combines histograms with options of tables.
func TestUsage(t *testing.T) {
	tooltest.Fails(t, Tool, []string{"-d", "--count"}, tool.ExitUsage, "cannot be combined")
	for _, option := range []string{"--sort=count", "--rows=3"} {
		tooltest.Fails(t, Tool, []string{"-d", option}, tool.ExitUsage, "they apply to tables")
	}
}
