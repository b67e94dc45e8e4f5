package stacktrace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/value"
)

// A process can map another file where it has unmapped one: dlclose and dlopen do. Stacks in both can
// have the same addresses, and then the same ID, so that their counts cannot be separated. Frames in
// such files have no name.

// origin is where a stack was first sampled.
type origin struct {
	pid  uint32
	from uint64 // CLOCK_MONOTONIC in ns
	// pcs has an address in each file of the stack, in the order of frames.
	pcs []uint64
}

// settled is the state of Settle.
type settled struct {
	mu       sync.Mutex
	to       uint64
	notified map[uint32]bool // processes
}

// maxNotices bounds the number of processes that are reported.
const maxNotices = 20

func monotonic() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return uint64(now.Nano())
}

// Settle returns when all mmap records of the time before have been read. Call it when counts have
// been read, before Trace is called for their IDs.
func (t *Traces) Settle() { t.settleTo(monotonic()) }

// settleTo returns when all mmap records up to a time have been read.
func (t *Traces) settleTo(to uint64) {
	if t.watch == nil {
		return
	}
	t.settled.mu.Lock()
	isSettled := t.settled.to >= to
	t.settled.mu.Unlock()
	now := monotonic()
	if isSettled || t.watch.Sync() != nil {
		return
	}
	t.settled.mu.Lock()
	defer t.settled.mu.Unlock()
	t.settled.to = max(t.settled.to, now)
}

// originOf returns the origin of a stack with its frames.
func (t *Traces) originOf(raw *rawStack, frames []stack.Frame) *origin {
	if raw.pid == 0 || raw.isOutside() || t.watch == nil {
		return nil
	}
	o := &origin{pid: raw.pid, from: raw.time}
	var modules []string
	for i := range frames {
		f := &frames[i]
		if !isFile(f.Module) || slices.Contains(modules, f.Module) {
			continue
		}
		pc := f.Addr
		if i > 0 {
			pc--
		}
		modules, o.pcs = append(modules, f.Module), append(o.pcs, pc)
	}
	return o
}

func isFile(module string) bool { return strings.HasPrefix(module, "/") }

// putStack adds a stack that was received. If late is set, the stack should be symbolized again when it
// is used: see takeLate. A stack that is received again keeps the time of the first one, because
// earlier counts can still be unread.
func (c *traceCache) putStack(id StackID, s value.Stack, o *origin, late *rawStack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.traces[id]; o != nil && old != nil && old.origin != nil {
		o.from = min(o.from, old.origin.from)
	}
	t := c.add(id, s)
	t.origin = o
	if late != nil && c.late < maxLate {
		t.late = late
		c.late++
	}
}

// intact is get, but frames in files for which isReplaced returns true have no name.
func (c *traceCache) intact(id StackID, isReplaced func(o *origin, pc uint64) bool) value.Trace {
	trace := c.get(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.traces[id]
	if t == nil || t.origin == nil {
		return trace
	}
	var modules, replaced []string
	frames := trace.Frames()
	for i := range frames {
		m := frames[i].Module
		if frames[i].Kernel || !isFile(m) || slices.Contains(modules, m) || len(modules) == len(t.origin.pcs) {
			continue
		}
		if isReplaced(t.origin, t.origin.pcs[len(modules)]) {
			replaced = append(replaced, m)
		}
		modules = append(modules, m)
	}
	if len(replaced) == 0 {
		return trace
	}
	s := make(value.Stack, len(frames))
	for i, f := range frames {
		if slices.Contains(replaced, f.Module) {
			f = value.Frame{Address: f.Address, How: f.How, Reason: stack.Replaced.String()}
		}
		s[i] = f
	}
	return c.intern(s)
}

// isReplaced reports whether the process has mapped another file at an address since a stack was
// first sampled.
func (t *Traces) isReplaced(o *origin, pc uint64) bool {
	is := t.processes.Replaced(int(o.pid), pc, o.from)
	if is {
		t.notice(o.pid, pc)
	}
	return is
}

// noticeReplaced reports a process with frames that are not named because a file was replaced.
func (t *Traces) noticeReplaced(raw *rawStack, frames []stack.Frame) {
	for i := range frames {
		if frames[i].Reason == stack.Replaced {
			t.notice(raw.pid, frames[i].Addr-1)
			return
		}
	}
}

// notice reports once that a process mapped two files at an address.
func (t *Traces) notice(pid uint32, pc uint64) {
	r := t.processes.Replacement(int(pid), pc)
	if r.New == "" {
		return // the process executed another program
	}
	t.settled.mu.Lock()
	if t.settled.notified == nil {
		t.settled.notified = map[uint32]bool{}
	}
	isNew := !t.settled.notified[pid] && len(t.settled.notified) < maxNotices
	if isNew {
		t.settled.notified[pid] = true
	}
	t.settled.mu.Unlock()
	if isNew && t.notify != nil {
		t.notify(errors.New(noticeText(pid, r)))
	}
}

func noticeText(pid uint32, r stack.Replacement) string {
	name := ""
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		name = fmt.Sprintf(" (%q)", strings.TrimSpace(string(comm)))
	}
	switch {
	case r.Old == "":
		return fmt.Sprintf("process %d%s mapped %q where it can have had another file: functions at these addresses are not named", pid, name, r.New)
	case r.Old == r.New:
		return fmt.Sprintf("process %d%s mapped different versions of %q at the same address: functions in it are not named", pid, name, r.New)
	}
	return fmt.Sprintf("process %d%s mapped %q and %q at the same address: functions in them are not named", pid, name, r.Old, r.New)
}
