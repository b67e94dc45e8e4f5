package stack

import (
	"slices"
	"sync"

	"github.com/corescope/corescope/internal/limit"
)

// Mapping is an executable mapping of a file, as it was heard of when it was made.
type Mapping struct {
	Start, End, Offset, Inode uint64
	// Path is below the root of the process.
	Path string
}

// maxHeard bounds the mappings of a process that are kept.
const maxHeard = 256

// heard are the mappings of processes that may be gone before they can be looked at.
type heard struct {
	mu    sync.Mutex
	byPID map[int][]mapping
	size  int   // of all mappings, in bytes
	order []int // pids, the oldest first
}

// Heard tells of a mapping as it is made. It is for processes that end before they can be
// looked at: their files are found by their paths then, below our own root alone.
func (ps *Processes) Heard(pid int, m Mapping) {
	ps.stir(pid)
	h := &ps.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byPID == nil {
		h.byPID = make(map[int][]mapping)
	}
	maps, ok := h.byPID[pid]
	if !ok {
		h.order = append(h.order, pid)
	}
	for len(h.order) > 1 && (len(h.order) > maxProcesses || h.size > limit.Snapshots) {
		if h.order[0] == pid {
			h.order = append(h.order[1:], pid)
			continue
		}
		for i := range h.byPID[h.order[0]] {
			h.size -= h.byPID[h.order[0]][i].bytes()
		}
		delete(h.byPID, h.order[0])
		h.order = h.order[1:]
	}
	n := mapping{start: m.Start, end: m.End, offset: m.Offset, inode: m.Inode, path: m.Path}
	// What it covers is gone: by an exec, or as another process has that pid now.
	maps = slices.DeleteFunc(maps, func(o mapping) bool {
		isGone := o.start < n.end && n.start < o.end
		if isGone {
			h.size -= o.bytes()
		}
		return isGone
	})
	if len(maps) >= maxHeard {
		h.size -= maps[0].bytes()
		maps = maps[1:]
	}
	h.size += n.bytes()
	h.byPID[pid] = append(maps, n)
}

// stir has the mappings of a process that is remembered read again.
func (ps *Processes) stir(pid int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.pids[pid]; p != nil {
		p.stirred.Store(true)
	}
}

func (h *heard) hasAny() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byPID != nil
}

// recall makes a snapshot of a process that has ended of what was heard of it, and of the one
// before. It is false where nothing was heard.
func (ps *Processes) recall(p *process) bool {
	h := &ps.heard
	h.mu.Lock()
	maps := slices.Clone(h.byPID[p.pid])
	h.mu.Unlock()
	if len(maps) == 0 {
		return false
	}
	s, old := &snapshot{pid: p.pid, roots: ps.roots(nil)}, p.taken
	if old != nil {
		*s = *old
	}
	s.maps = maps
	sortMaps(s.maps)
	for i := range s.maps {
		if !ps.reuse(&s.maps[i], old) {
			ps.findHeard(&s.maps[i], s.roots)
		}
	}
	if old != nil {
		ps.keepUnmapped(s, old)
		ps.releaseMaps(old)
	}
	ps.keep(p, s)
	return true
}

// path is that of a mapping that was heard of, "" if it was not.
func (h *heard) path(pid int, c *Code) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.byPID[pid] {
		if m := &h.byPID[pid][i]; m.start == c.Start && m.offset == c.Offset {
			return m.file()
		}
	}
	return ""
}

// findHeard finds the file of a mapping that was heard of.
func (ps *Processes) findHeard(m *mapping, roots []*root) {
	m.reason = Exited
	for _, r := range roots {
		if found := m.same(r.handle(m.file())); found != nil {
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
