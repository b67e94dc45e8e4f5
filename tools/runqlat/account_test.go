package runqlat

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnobserved runs the programs with BPF_PROG_TEST_RUN for a thread that is woken twice and
// scheduled twice. The second context switch is not observed, which is detected when the thread
// leaves the CPU.
func TestUnobserved(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "queue__raw__wakeup", "queue__raw__switch")
	const idle, voluntarily = 0, 0 // address 0: all members of this task read as 0
	task := tooltest.SleepingTask(t)
	p.Run("queue__raw__wakeup", task)
	p.Run("queue__raw__switch", voluntarily, idle, task)
	p.Run("queue__raw__switch", voluntarily, task, idle)
	if n := p.Unobserved(); n != 0 {
		t.Errorf("%d lost waits, want 0: all were observed", n)
	}
	p.Run("queue__raw__wakeup", task)
	p.Run("queue__raw__switch", voluntarily, task, idle)
	if n := p.Unobserved(); n != 1 {
		t.Errorf("%d lost waits, want 1", n)
	}
}
