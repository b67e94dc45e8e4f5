package criticalstat

import (
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestNeeds checks that the tool names the kernel option that it needs, or counts sections.
func TestNeeds(t *testing.T) {
	tooltest.Root(t)
	for flag, tracepoint := range map[string]string{"-i": "irq_disable", "-p": "preempt_disable"} {
		if !tooltest.HasTracepoint(t, tracepoint) {
			tooltest.Fails(t, Tool, []string{flag}, 4, "CONFIG_PREEMPTIRQ_TRACEPOINTS")
			continue
		}
		res := tooltest.JSON(t, Tool, []string{flag, "--min", "0"}, func() { time.Sleep(time.Millisecond) })
		if len(res.Events) == 0 {
			t.Errorf("%s: no sections", flag)
		}
	}
}

// TestSections runs the programs with BPF_PROG_TEST_RUN.
func TestSections(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tooltest.LoadPrograms(t, loadBpf, nil, "irq__raw__disable", "irq__raw__enable", "idle__raw")
	tooltest.PinThread(t) // the state belongs to a CPU
	type section struct{ SinceNs, IP, ParentIP, Idle uint64 }
	state := func() (sum section) {
		var cpus []section
		if err := p.Maps["sections"].Lookup(uint32(0), &cpus); err != nil {
			t.Fatal(err)
		}
		for _, s := range cpus {
			sum = section{sum.SinceNs + s.SinceNs, sum.IP + s.IP, sum.ParentIP + s.ParentIP, sum.Idle + s.Idle}
		}
		return sum
	}
	p.Run("irq__raw__enable", 1, 2)
	if s := state(); s.SinceNs != 0 {
		t.Errorf("an enable without a disable: %+v", s)
	}
	p.Run("irq__raw__disable", 3, 4)
	first := state()
	p.Run("irq__raw__disable", 5, 6)
	if s := state(); s != first || s.SinceNs == 0 || s.IP != 3 || s.ParentIP != 4 {
		t.Errorf("disabled twice: %+v, then %+v", first, s)
	}
	p.Run("irq__raw__enable", 7, 8)
	if s := state(); s.SinceNs != 0 {
		t.Errorf("still disabled: %+v", s)
	}
	const awake = 0xffffffff
	p.Run("idle__raw", 1, 0)
	p.Run("irq__raw__disable", 3, 4)
	if s := state(); s.SinceNs != 0 || s.Idle != 1 {
		t.Errorf("a section while idle: %+v", s)
	}
	p.Run("idle__raw", awake, 0)
	p.Run("irq__raw__disable", 3, 4)
	if s := state(); s.SinceNs == 0 || s.Idle != 0 {
		t.Errorf("no section after idle: %+v", s)
	}
}
