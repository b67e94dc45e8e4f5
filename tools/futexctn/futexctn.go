// Package futexctn shows the time that threads wait for futexes.
package futexctn

import (
	"fmt"
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh futexctn.bpf.c -type outcome

type options struct {
	source.Interval
	source.Milliseconds
	Lock     address `flag:"lock,l" arg:"ADDRESS" bpf:"targ_lock" help:"only waits for the futex at this address, such as 0x7f0012345678"`
	Summary  bool    `flag:"summary,s" help:"one histogram per process and futex, without threads and stacks"`
	Outcomes bool    `flag:"outcomes" bpf:"by_outcome" key:"outcome" help:"separate histograms for waits that ended by a wake-up, a timeout or a signal"`
	Holders  bool    `flag:"holder" bpf:"by_holder" key:"holder,holder_tid" help:"separate histograms by the thread that held the lock when the wait began"`
	Code     bool    `flag:"holder-stack" bpf:"by_holder_stack" key:"holder,holder_tid,holder_user_stack" help:"--holder, and separate histograms by its stack trace when it released the lock"`
	stacktrace.Frames
	stacktrace.UserStacks
}

// address is an address on the command line.
type address uint64

// UnmarshalText parses a number; 0x precedes a hexadecimal one.
func (a *address) UnmarshalText(s []byte) error {
	n, err := strconv.ParseUint(string(s), 0, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not an address: want a number such as 0x7f0012345678", s)
	}
	*a = address(n)
	return nil
}

// String returns the address, or "".
func (a *address) String() string {
	if *a == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", uint64(*a))
}

// histKey mirrors struct hist_key.
type histKey struct {
	Stack       stacktrace.StackID `btf:"user_stack"`
	HolderStack stacktrace.StackID
	Lock        value.Address
	PID, TID    uint32
	Comm        value.Comm
	Outcome     uint32
	HolderTID   uint32     `btf:"holder"`
	Holder      value.Comm `btf:"holder_comm"`
}

type label struct {
	Comm        value.Comm    `json:"comm" col:"COMM,bare" help:"name of the thread at the end of the wait; with --summary of the process (its thread-group leader)"`
	PID         uint32        `json:"pid" help:"process that waited, in the initial PID namespace"`
	TID         uint32        `json:"tid" help:"thread that waited, in the initial PID namespace"`
	Lock        value.Address `json:"lock" help:"address of the futex in the process; of several (futex_waitv) the first"`
	Outcome     string        `json:"outcome" help:"how the wait ended: woken (or the lock was acquired), timeout, or interrupted by a signal"`
	Holder      value.Name    `json:"holder" help:"name of the thread of the process that held the lock when the wait began; absent if that is unknown"`
	HolderTID   value.Nonzero `json:"holder_tid" help:"that thread, in the initial PID namespace; absent if unknown"`
	HolderStack value.Trace   `json:"holder_user_stack" help:"user stack trace of that thread when it released the lock and thereby woke the waiting one, innermost frame first; absent if another thread woke it"`
	UserStack   value.Trace   `json:"user_stack" help:"user stack trace of the wait, innermost frame first"`
}

// Tool is the definition of futexctn.
var Tool = tool.Define(tool.Spec{
	Name:     "futexctn",
	Category: "process",
	Summary:  "Futex contention: time that threads wait for user-space locks (mutexes), by lock and stack",
	Description: `Measures the time that threads wait for futexes: the locks, condition variables, semaphores and barriers of user space. There is one histogram per thread, futex and user stack trace. It shows which lock a program waits for, and in which code.

A wait is a system call that waits: futex with the operations FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI and FUTEX_LOCK_PI2, futex_wait and futex_waitv, of 64-bit and 32-bit tasks. The time is from entry (sys_enter) to return (sys_exit), CLOCK_MONOTONIC. It includes the run queue latency after the wake-up. A call that a signal interrupts is one wait up to the signal, and, if the kernel restarts it, another one from then on.

A lock that is free is acquired without a system call, so only contended locks appear. But not every wait is contention: a thread without work often waits for a condition variable. Its stack trace shows that.

--holder names the thread that held the lock when the wait began, where the memory of the lock says so: mutexes of glibc, so also std::mutex of C++, in 64-bit programs, locks with priority inheritance, and read-write locks of glibc (2.25 and later) that a writer holds. That thread must be another one of the same process, among its first 512. In all other cases the holder is absent: condition variables, semaphores, locks held by readers or shared with another process, locks of other libraries and languages, and locks that were just released.

--holder-stack adds the user stack trace of that thread when it released the lock: it is taken in its context when it wakes the waiting thread (sched_waking), in the system call with which it unlocks, so the thread still is in the code that held the lock. It is absent if another thread woke the waiting one, as when several threads waited and the lock passed through one of them first, if the wait ended by a timeout or a signal, and if the holder is unknown. It needs Linux 5.15; without that the run ends with exit code 4.

Waits are counted when they end. Waits that began before the tool started are not counted.

Counters in the summary: unblocked: calls that returned at once, because the futex had another value (EAGAIN); failed: calls with other errors; waiting: waits that had not ended when the run ended. The wait of a thread that is killed ends as interrupted.`,
	Peers: []string{
		"-p is --pid and -t is --tid; several are possible.",
		"All kinds of waits are covered. libbpf-tools covers only the operation FUTEX_WAIT of 64-bit tasks, so neither locks with priority inheritance nor 32-bit tasks nor futex_waitv.",
		"Calls that return at once are not waits.",
		"Stacks are grouped by functions; with --address by addresses.",
		"--stack-storage-size has no effect: the number of stacks is not limited.",
	},
	Examples: []string{
		"futexctn -p 1234 10         # one process, ten seconds",
		"futexctn -s -m 5            # by process and futex, in milliseconds, every five seconds",
		"futexctn -p 1234 --outcomes --filter 'outcome == \"woken\"'  # without timeouts",
		"futexctn -p 1234 --holder -s 10  # who held the locks",
		"futexctn -p 1234 --holder-stack -s 10  # in which code they held them",
		"futexctn -l 0x7f0012345678  # waits for one lock",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t"},
}, options{Frames: stacktrace.DefaultFrames(), UserStacks: stacktrace.DefaultUserStacks()}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	h := &source.Hists[histKey, label]{
		Plan: tool.Plan{
			Variables: map[string]any{"by_thread": !o.Summary, "by_holder": o.Holders || o.Code},
			Features:  map[string]tool.Feature{"by_holder_stack": {Hooks: []string{"waking"}}},
			Settle:    []tool.Iterator{{Program: "settle", Map: "waits"}},
		},
		Interval:   o.Interval,
		Unit:       o.Unit(),
		Keys:       append([]string{"comm", "pid", "lock"}, source.Keys(o)...),
		Stacks:     &o.Frames,
		UserStacks: &o.UserStacks,
		Trace:      o.label,
	}
	if !o.Summary {
		h.Keys = append(h.Keys, "tid", "user_stack")
	}
	return h, nil
}

// label converts a key to a label.
func (o *options) label(k histKey, t *stacktrace.Traces) label {
	l := label{Comm: k.Comm, PID: k.PID, TID: k.TID, Lock: k.Lock}
	if o.Outcomes {
		l.Outcome = [...]string{"woken", "timeout", "interrupted"}[k.Outcome%3]
	}
	if o.Holders || o.Code {
		l.Holder, l.HolderTID = value.NameOf(k.Holder[:]), value.Nonzero(k.HolderTID)
	}
	if o.Code {
		l.HolderStack = t.Trace(k.HolderStack)
	}
	if !o.Summary {
		l.UserStack = t.Trace(k.Stack)
	}
	return l
}
