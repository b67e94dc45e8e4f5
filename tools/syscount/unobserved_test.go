package syscount

import (
	"runtime"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnobserved runs the programs with BPF_PROG_TEST_RUN. The return of a call that was entered
// before the programs ran is counted without a time; it is lost if the call was entered later but
// its entry was not observed.
func TestUnobserved(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"want_latency": true}, "enter__raw", "exit__raw")
	runtime.LockOSThread() // the programs read the current task
	defer runtime.UnlockOSThread()
	// The address of the registers is not mapped: they read as 0.
	const registers, number, result = 0x1000, 1, 1
	for _, step := range []struct {
		name              string
		enter             bool
		counted, lost, no uint64
	}{
		{"entered before", false, 0, 0, 1},
		{"entered and returned", true, 1, 0, 1},
		{"entry missed", false, 1, 1, 2},
	} {
		if step.enter {
			p.Run("enter__raw", registers, number)
		}
		p.Run("exit__raw", registers, result)
		if counted, lost, no := sums(t, p); counted != step.counted || lost != step.lost || no != step.no {
			t.Errorf("%s: %d counted, %d lost, %d without entry, want %d, %d, %d",
				step.name, counted, lost, no, step.counted, step.lost, step.no)
		}
	}
}

// sums reads how many calls were counted, lost (unobserved), and without an entry.
func sums(t *testing.T, p *tooltest.Programs) (counted, lost, noEntry uint64) {
	t.Helper()
	var counters []struct{ NoEntry, ExecWithoutEntry uint64 }
	if err := p.Maps["counters"].Lookup(uint32(0), &counters); err != nil {
		t.Fatal(err)
	}
	for _, c := range counters {
		noEntry += c.NoEntry
	}
	var key []byte
	var value struct{ Count, Errors, TotalNs uint64 }
	for it := p.Maps["table"].Iterate(); it.Next(&key, &value); {
		counted += value.Count
	}
	return counted, p.Unobserved(), noEntry
}
