package offcputime

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnobserved runs the programs with BPF_PROG_TEST_RUN for a thread that leaves the CPU twice,
// without an observed return to the CPU between.
func TestUnobserved(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "switch__raw")
	const idle, voluntarily = 0, 0
	task := tooltest.SleepingTask(t)
	for want := range uint64(2) {
		p.Run("switch__raw", voluntarily, task, idle)
		if n := p.Unobserved(); n != want {
			t.Errorf("%d lost waits, want %d", n, want)
		}
	}
	p.Run("switch__raw", voluntarily, idle, task)
	p.Run("switch__raw", voluntarily, task, idle)
	if n := p.Unobserved(); n != 1 {
		t.Errorf("%d lost waits after an observed one, want 1", n)
	}
}
