package stack

import (
	"path/filepath"
	"slices"
)

// change is an executable mapping of a file that a process created, or an exec, which removed all
// mappings.
type change struct {
	Mapping
	isExec bool
}

// changes are the changes of the mappings of a process.
type changes struct {
	byTime []change
	// Of changes that were dropped: the time of the last one, and the range of their addresses.
	droppedTo  uint64
	start, end uint64
}

// maxChanges bounds the number of changes that are kept per process.
const maxChanges = 512

// changeBytes is the memory of a change. Its path is that of the mapping.
const changeBytes = 80

// add adds a change, and returns by how many bytes the memory has grown.
func (cs *changes) add(c change) int {
	i := len(cs.byTime)
	for i > 0 && cs.byTime[i-1].Time > c.Time { // of another CPU
		i--
	}
	cs.byTime = slices.Insert(cs.byTime, i, c)
	if len(cs.byTime) <= maxChanges {
		return changeBytes + len(c.Path)
	}
	old := cs.byTime[0]
	if !old.isExec {
		if cs.end == 0 {
			cs.start = old.Start
		}
		cs.start, cs.end, cs.droppedTo = min(cs.start, old.Start), max(cs.end, old.End), old.Time
	}
	cs.byTime = slices.Delete(cs.byTime, 0, 1)
	return len(c.Path) - len(old.Path)
}

func (cs *changes) bytes() (n int) {
	for i := range cs.byTime {
		n += changeBytes + len(cs.byTime[i].Path)
	}
	return n
}

// pathOf returns the path of the last mapping that was equal to c, or "".
func (cs *changes) pathOf(c *Code) string {
	if cs == nil {
		return ""
	}
	for i := len(cs.byTime) - 1; i >= 0; i-- {
		if m := &cs.byTime[i]; m.Start == c.Start && m.Offset == c.Offset && m.Inode == c.File.Inode {
			return m.Path
		}
	}
	return ""
}

// isSame reports whether both map the same file so that an address has the same code.
func (c *change) isSame(o *change) bool {
	return c.Inode == o.Inode && c.Path == o.Path && c.Start-c.Offset == o.Start-o.Offset
}

// Replacement are the names of two files that a process mapped at the same address, one after the
// other. Old is empty if it is not known.
type Replacement struct{ Old, New string }

// RecordExec records that a process executes a new program, at a time (CLOCK_MONOTONIC in ns).
func (ps *Processes) RecordExec(pid int, at uint64) {
	r := &ps.mmaps
	r.mu.Lock()
	defer r.mu.Unlock()
	if cs := r.changes[pid]; cs != nil {
		r.size += cs.add(change{Mapping: Mapping{Time: at}, isExec: true})
	}
}

// Replaced reports whether the process mapped another file at an address later than at time from.
// Mappings of a program that it executed later do not count. The mmap records of the time until now
// must have been read.
func (ps *Processes) Replaced(pid int, addr, from uint64) bool {
	return ps.mmaps.replaced(pid, addr, from, ^uint64(0), true)
}

// Replacement returns the last two different files that one program of the process mapped at an
// address, or nothing if another program that it executed mapped the second one.
func (ps *Processes) Replacement(pid int, addr uint64) (r Replacement) {
	ps.mmaps.mu.Lock()
	defer ps.mmaps.mu.Unlock()
	cs := ps.mmaps.changes[pid]
	if cs == nil {
		return r
	}
	var last *change
	hasExeced := false
	for i := range cs.byTime {
		c := &cs.byTime[i]
		switch {
		case c.isExec:
			last, hasExeced = nil, true
			continue
		case !c.holds(addr) || last != nil && c.isSame(last):
			continue
		case last != nil:
			r = Replacement{filepath.Base(last.Path), filepath.Base(c.Path)}
		case !hasExeced:
			r.New = filepath.Base(c.Path)
		}
		last = c
	}
	return r
}

func (c *change) holds(addr uint64) bool { return !c.isExec && addr >= c.Start && addr < c.End }

// replaced reports whether the process mapped another file at an address later than at time from,
// up to time to, or up to an exec if untilExec is set.
func (r *mmapRecords) replaced(pid int, addr, from, to uint64, untilExec bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cs := r.changes[pid]
	if cs == nil {
		return false
	}
	if from < cs.droppedTo && addr >= cs.start && addr < cs.end {
		return true
	}
	var old *change
	for i := range cs.byTime {
		c := &cs.byTime[i]
		switch {
		case c.Time > to || c.isExec && untilExec && c.Time > from:
			return false
		case !c.holds(addr):
		case c.Time <= from:
			old = c
		case old == nil || !c.isSame(old):
			return true
		}
	}
	return false
}

// SetSettle sets a function that returns when all mmap records up to a time have been recorded.
// Without it, the times of mappings are not compared with those of stacks.
func (ps *Processes) SetSettle(settle func(to uint64)) { ps.settle = settle }

// isReplaced reports whether the process can have mapped another file at pc at a time than the file
// in the snapshot.
func (ps *Processes) isReplaced(p *process, pc, at uint64) bool {
	if ps.settle == nil || at == 0 || p.snapshot == nil {
		return false
	}
	m := p.snapshot.mapping(pc)
	if m == nil || !m.isFile() || m.seenTo == 0 {
		return false
	}
	from, to := min(m.seenFrom, at), max(m.seenTo, at)
	ps.settle(to)
	return ps.mmaps.replaced(p.pid, pc, from, to, false)
}
