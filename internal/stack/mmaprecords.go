package stack

import (
	"slices"
	"strings"
	"sync"

	"github.com/corescope/corescope/internal/limit"
)

// Mapping is an executable mapping of a file, from the mmap record that reported it.
type Mapping struct {
	Start, End, Offset, Inode uint64
	// Path is relative to the root of the process.
	Path string
	// Time is when it was created (CLOCK_MONOTONIC in ns).
	Time uint64
}

// maxMmaps bounds the number of mmap records that are kept per process.
const maxMmaps = 256

// mmapRecords are the mappings from mmap records, by process. They are used for processes that exit
// before corescope reads their mappings from /proc.
type mmapRecords struct {
	mu    sync.Mutex
	byPID map[int][]mapping
	// changes are all mappings that were created, by process: see replaced.
	changes map[int]*changes
	size    int   // bytes of all mappings
	order   []int // PIDs, the oldest first
}

// isMemory reports whether the path is that of memory without a file. JIT compilers map code there, which
// has its names from the process (perf map).
func isMemory(path string) bool {
	return strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "/dev/zero")
}

// RecordMmap adds a mapping when it is created. It is used if the process exits before its mappings
// are read from /proc. Its file is then opened by path below corescope's root.
func (ps *Processes) RecordMmap(pid int, m Mapping) {
	ps.markStale(pid)
	r := &ps.mmaps
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPID == nil {
		r.byPID = make(map[int][]mapping)
		r.changes = make(map[int]*changes)
	}
	if !isMemory(m.Path) {
		if r.changes[pid] == nil {
			r.changes[pid] = &changes{}
		}
		r.size += r.changes[pid].add(change{Mapping: m})
	}
	maps, ok := r.byPID[pid]
	if !ok {
		r.order = append(r.order, pid)
	}
	for len(r.order) > 1 && (len(r.order) > maxProcesses || r.size > limit.Snapshots) {
		if r.order[0] == pid {
			r.order = append(r.order[1:], pid)
			continue
		}
		for i := range r.byPID[r.order[0]] {
			r.size -= r.byPID[r.order[0]][i].bytes()
		}
		if c := r.changes[r.order[0]]; c != nil {
			r.size -= c.bytes()
		}
		delete(r.changes, r.order[0])
		delete(r.byPID, r.order[0])
		r.order = r.order[1:]
	}
	n := mapping{start: m.Start, end: m.End, offset: m.Offset, inode: m.Inode, path: m.Path, seenFrom: m.Time, seenTo: m.Time}
	// Mappings that it overlaps do not exist any more: it replaced them, or the process called
	// exec, or the PID was reused.
	maps = slices.DeleteFunc(maps, func(o mapping) bool {
		overlap := o.start < n.end && n.start < o.end
		if overlap {
			r.size -= o.bytes()
		}
		return overlap
	})
	if len(maps) >= maxMmaps {
		r.size -= maps[0].bytes()
		maps = maps[1:]
	}
	r.size += n.bytes()
	r.byPID[pid] = append(maps, n)
}

// markStale requests that the mappings of a process are read again, if it is known.
func (ps *Processes) markStale(pid int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.pids[pid]; p != nil {
		p.stale.Store(true)
	}
}

func (r *mmapRecords) hasAny() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byPID != nil
}

// takeFromMmaps makes the snapshot of a process that has exited, from its mmap records and its last
// snapshot. It returns false if there are no records.
func (ps *Processes) takeFromMmaps(p *process) bool {
	r := &ps.mmaps
	r.mu.Lock()
	maps := slices.Clone(r.byPID[p.pid])
	r.mu.Unlock()
	if len(maps) == 0 {
		return false
	}
	s, old := &snapshot{pid: p.pid, roots: ps.searchRoots(nil)}, p.snapshot
	if old != nil {
		*s = *old
	}
	s.maps = maps
	sortMaps(s.maps)
	for i := range s.maps {
		if !ps.reuse(&s.maps[i], old) {
			ps.findByPath(&s.maps[i], s.roots)
		}
	}
	if old != nil {
		ps.keepUnmapped(s, old)
		ps.releaseMaps(old)
	}
	ps.setSnapshot(p, s)
	return true
}

// path returns the path of a mapping from its mmap record, or "".
func (r *mmapRecords) path(pid int, c *Code) (path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.byPID[pid] {
		if m := &r.byPID[pid][i]; m.start == c.Start && m.offset == c.Offset {
			path = m.path
		}
	}
	if p := r.changes[pid].pathOf(c); p != "" {
		return p
	}
	return path
}

// findByPath opens the file of a mapping by path and sets the module, or the reason Exited.
func (ps *Processes) findByPath(m *mapping, roots []*root) {
	m.reason = Exited
	for _, r := range roots {
		if found := m.check(r.handle(m.path)); found != nil {
			m.module, m.reason = ps.cache.module(moduleKey{file: found.id}, found, nil), Named
			return
		}
	}
}

func sortMaps(maps []mapping) {
	slices.SortFunc(maps, func(a, b mapping) int {
		return compareBool(a.start > b.start, b.start > a.start)
	})
}
