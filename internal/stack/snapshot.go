package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
)

// snapshot is what was read of a process while it ran. It suffices to symbolize its addresses after
// it has exited.
type snapshot struct {
	pid      int
	start    uint64  // when the process started, in clock ticks since boot
	program  inodeID // /proc/PID/exe, zero if it cannot be read
	root     *root   // nil if it cannot be opened
	roots    []*root // where to search files: root, and corescope's own
	maps     []mapping
	perfPath string
	jits     []jitFile // jitdumps and perf map
	takenAt  uint64    // CLOCK_MONOTONIC in ns
}

// jitFile is a file in which a JIT compiler describes its functions.
type jitFile struct {
	path   string
	module *module
}

// readSnapshot takes a snapshot of a process. It reuses modules of old, an earlier snapshot of the
// same process. If the PID has been reused and allowReuse is not set, the process has exited.
func (ps *Processes) readSnapshot(pid int, old *snapshot, allowReuse bool) (*snapshot, error) {
	d, err := openProc(pid)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	isKernelThread, start, err := d.stat()
	if err != nil {
		return nil, err
	}
	if old != nil && old.start != start {
		if !allowReuse {
			return nil, fmt.Errorf("process has exited and its PID was reused: %w", fs.ErrNotExist)
		}
		old = nil
	}
	began := monotonic()
	maps, isAny, exceeded := d.maps()
	if exceeded != nil && !errors.Is(exceeded, limit.ErrExceeded) {
		return nil, exceeded
	}
	if !isAny {
		t, shared, err := d.openThread()
		if err == nil {
			defer t.Close()
			d, maps = t, shared
		} else if !isKernelThread { // the process is exiting, or a zombie
			return nil, err
		}
	}
	if exceeded != nil {
		ps.cache.limits.Report(pid, exceeded, "code in mappings beyond the limit has no names")
	}
	s := &snapshot{pid: pid, takenAt: monotonic(), start: start, perfPath: perfMapPath(d.innerPID(pid)), maps: maps}
	for i := range s.maps {
		s.maps[i].seenFrom, s.maps[i].seenTo = began, s.takenAt
	}
	ps.openFiles(s, old, d)
	return s, nil
}

// openFiles opens the root and the files of s. old is the previous snapshot or nil.
func (ps *Processes) openFiles(s, old *snapshot, d procDir) {
	s.root = ps.shareRoot(d.path)
	s.roots = ps.searchRoots(s.root)
	s.program, _ = inodeOf(d.path + "/exe")
	for i := range s.maps {
		if !ps.reuse(&s.maps[i], old) {
			ps.findModule(&s.maps[i], s, d)
		}
	}
	if old != nil {
		ps.keepUnmapped(s, old)
	}
	ps.findJIT(s, d)
}

func monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano())
}

// reuse sets the module of m to that of the same mapping in an older snapshot.
func (ps *Processes) reuse(m *mapping, old *snapshot) bool {
	if old == nil {
		return false
	}
	o := old.mapping(m.start)
	if o == nil || o.module == nil || !m.isSame(o) {
		return false
	}
	m.module = o.module
	ps.cache.retain(m.module)
	return true
}

// maxUnmapped bounds the number of mappings that are kept after they were removed.
const maxUnmapped = 4096

// keepUnmapped adds mappings of old that the process has removed since, by dlclose or exec, because
// earlier samples have addresses in them.
func (ps *Processes) keepUnmapped(s, old *snapshot) {
	current := len(s.maps)
	for _, o := range old.maps {
		if o.module == nil || len(s.maps)-current >= maxUnmapped || overlaps(s.maps[:current], o) {
			continue
		}
		ps.cache.retain(o.module)
		s.maps = append(s.maps, o)
	}
	sortMaps(s.maps)
}

// overlaps reports whether a mapping in maps, sorted by address, overlaps o.
func overlaps(maps []mapping, o mapping) bool {
	i, _ := slices.BinarySearchFunc(maps, o.start, func(m mapping, start uint64) int {
		return compareBool(m.end > start, m.end <= start)
	})
	return i < len(maps) && maps[i].start < o.end
}

// startTime returns when the process started, at the latest. It is a little earlier, because clock
// ticks are coarse and the wall clock can have been adjusted.
func (s *snapshot) startTime() time.Time {
	const ticks, slack = 100, 2 * time.Second // USER_HZ on x86-64 and arm64
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return time.Time{}
	}
	age := time.Duration(boot.Nano()) - time.Duration(s.start)*(time.Second/ticks)
	return time.Now().Add(-age - slack)
}

// bytes returns the memory of the snapshot. Consecutive mappings of a file share the path.
func (s *snapshot) bytes() (n int64) {
	if s == nil {
		return 0
	}
	for i := range s.maps {
		n += int64(s.maps[i].bytes())
		if i > 0 && s.maps[i].path == s.maps[i-1].path {
			n -= int64(len(s.maps[i].path))
		}
	}
	return n
}

// hasSameMappings reports whether both have the same mappings and there is no jitdump or perf map,
// because a JIT compiler continues to write these.
func (s *snapshot) hasSameMappings(o *snapshot) bool {
	if s == nil || o == nil || len(s.jits) > 0 || len(s.maps) != len(o.maps) {
		return false
	}
	for i := range s.maps {
		if !s.maps[i].isSame(&o.maps[i]) {
			return false
		}
	}
	return true
}

func (s *snapshot) rootID() inodeID {
	if s.root == nil {
		return inodeID{}
	}
	return s.root.id
}

// mapping returns the mapping that contains addr, or nil.
func (s *snapshot) mapping(addr uint64) *mapping {
	i, _ := slices.BinarySearchFunc(s.maps, addr, func(m mapping, addr uint64) int {
		return compareBool(m.end > addr, m.end <= addr)
	})
	if i == len(s.maps) || s.maps[i].start > addr {
		return nil
	}
	return &s.maps[i]
}
