package runqlat

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnobserved runs the programs by themselves, for a thread that is woken twice and given a
// CPU twice, the second time without a program that sees it: that shows as it leaves the CPU.
func TestUnobserved(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "queue__raw__wakeup", "queue__raw__switch")
	const idle, voluntarily = 0, 0 // at the address of the idle task all reads as 0
	task := tooltest.SleepingTask(t)
	p.Run("queue__raw__wakeup", task)
	p.Run("queue__raw__switch", voluntarily, idle, task)
	p.Run("queue__raw__switch", voluntarily, task, idle)
	if n := p.Unobserved(); n != 0 {
		t.Errorf("%d waits lost, all were observed", n)
	}
	p.Run("queue__raw__wakeup", task)
	p.Run("queue__raw__switch", voluntarily, task, idle)
	if n := p.Unobserved(); n != 1 {
		t.Errorf("%d waits lost, want 1", n)
	}
}
