package runqlat

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnobserved runs the programs with BPF_PROG_TEST_RUN for a thread, as if all programs were
// attached since boot. Each wait lacks the start, the end, or both.
func TestUnobserved(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"sched_begun_ns": uint64(1 << 4)}, "queue__raw__wakeup", "queue__raw__switch")
	const idle, voluntarily, preempted = 0, 0, 1 // address 0: all members of this task read as 0
	task := tooltest.SleepingTask(t)
	wake := func() { p.Run("queue__raw__wakeup", task) }
	get := func() { p.Run("queue__raw__switch", voluntarily, idle, task) }
	leave := func() { p.Run("queue__raw__switch", voluntarily, task, idle) }
	preempt := func() { p.Run("queue__raw__switch", preempted, task, idle) }
	want := uint64(0)
	for _, step := range []struct {
		name string
		runs []func()
		lost uint64
	}{
		{"all is observed", []func(){wake, get, leave}, 0},
		{"it gets a CPU unobserved", []func(){wake, leave}, 1},
		{"it is woken unobserved", []func(){get, leave}, 1},
		{"both are unobserved", []func(){leave}, 1},
		{"it leaves its CPU unobserved", []func(){wake, get, wake, get, leave}, 0},
		{"it is preempted unobserved", []func(){wake, get, get, leave}, 1},
		{"it is preempted", []func(){wake, get, preempt, wake, get, leave}, 0},
		{"it is preempted, and gets a CPU unobserved", []func(){wake, get, preempt, leave}, 1},
	} {
		for _, run := range step.runs {
			run()
		}
		want += step.lost
		if n := uint64(p.Unobserved()); n != want {
			t.Errorf("%s: %d lost waits, want %d", step.name, n, want)
			want = n
		}
	}
}

// TestAttaching checks that nothing is lost before all programs are attached.
func TestAttaching(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "queue__raw__wakeup", "queue__raw__switch")
	task := tooltest.SleepingTask(t)
	for range 2 {
		p.Run("queue__raw__switch", 0, 0, task)
		p.Run("queue__raw__switch", 0, task, 0)
		p.Run("queue__raw__wakeup", task)
		p.Run("queue__raw__switch", 0, task, 0)
	}
	if n := p.Unobserved(); n != 0 {
		t.Errorf("%d lost waits, want 0", n)
	}
}
