// Package culprit is shared by tools that divide waits for a CPU among what used it meanwhile
// (culprit.bpf.h).
package culprit

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

// Kind is what used the CPU: enum culprit_kind.
type Kind uint32

// The kinds of tasks. Others have no name.
const (
	Task   Kind = 1 // of another process
	Thread Kind = 2 // of the process that waited
)

// Kinds lists the names of all kinds, from 1 on.
func Kinds() []string {
	return []string{"task", "thread", "hardirq", "softirq", "steal", "throttled", "idle", "unknown"}
}

// IsTask reports whether the culprit is a task.
func (k Kind) IsTask() bool { return k == Task || k == Thread }

func (k Kind) String() string {
	if all := Kinds(); k > 0 && int(k) <= len(all) {
		return all[k-1]
	}
	return fmt.Sprint(uint32(k))
}

// Manual describes how waits are divided.
const Manual = `A wait is divided among what used the CPU in whose run queue the thread was, and the parts add up to the wait: each task for the time from the switch to it to the next switch (sched_switch), without interrupts. Interrupts are handlers (irq_handler_entry to irq_handler_exit) and softirqs (softirq_entry to softirq_exit) on that CPU. Interrupts without a handler, such as the local timer of x86, belong to the task that they interrupt. Steal is what the hypervisor reports to the kernel; without CONFIG_PARAVIRT_TIME_ACCOUNTING the kernel learns of it at each timer tick, and without CONFIG_PARAVIRT not at all. Throttled is the time in which the limit of a cgroup (cpu.max, CFS quota) stopped the thread, whatever else ran meanwhile. Idle is the time in which the CPU ran nothing, but had not switched to the thread yet. Unknown is the part of a wait before the last 1000 switches of its CPU (such waits are counted as overwritten), the part on all but four CPUs (scattered), and a wait that began while 16,384 threads waited already (untracked). So is a wait in which a limit stopped the thread in Linux 5.19 to 6.5, which do not count how long, and what else used the CPU in a wait in which it did so several times.`

// Prepare completes a plan for dividing waits, which is done in runs in which the variable want_culprit
// is true. functions are those of the tool that only such a run needs.
func Prepare(p *tool.Plan, functions ...string) {
	p.Features = map[string]tool.Feature{"want_culprit": {
		Hooks:     []string{"interrupt", "move"},
		Functions: append(functions, "culprit_switch", "culprit_begin"),
	}}
	p.Hints = map[string]string{
		"overwritten": "in these waits the CPU switched more than 1000 times: what used it before is unknown",
		"scattered":   "in these waits the thread waited for more than four CPUs: what used some of them is unknown",
		"untracked":   "these waits began while 16,384 threads waited already: what used the CPU is unknown",
	}
	p.Resolve = resolve
}

// resolve sizes the logs.
func resolve(p *tool.Plan, _ *tool.Kernel) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	p.MapEntries["culprit_cpus"] = uint32(cpus)
	return nil
}
