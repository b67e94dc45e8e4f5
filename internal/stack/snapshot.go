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

// snapshot is what was read of a process while it lived: enough to name its
// addresses after it has exited.
type snapshot struct {
	pid      int
	start    uint64  // when the process began, in clock ticks since boot
	program  inodeID // what it runs, zero if that may not be seen
	root     *root   // nil if it may not be opened
	roots    []*root // where its files may be found: there, and below our own
	maps     []mapping
	perfPath string
	jits     []jitFile // its jitdumps and its perf map, if it has them
	seen     uint64    // when it was taken, on CLOCK_MONOTONIC in ns
}

// jitFile is what a JIT compiler writes of the functions that it makes.
type jitFile struct {
	path   string
	module *module
}

// read takes a snapshot of a process. What it has in common with old, one of
// the same process, is taken from there; if the pid has passed to a successor
// that is not welcome, the process has exited.
func (ps *Processes) read(pid int, old *snapshot, successor bool) (*snapshot, error) {
	d, err := openProc(pid)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ofKernel, start, err := d.stat()
	if err != nil {
		return nil, err
	}
	if old != nil && old.start != start {
		if !successor {
			return nil, fmt.Errorf("pid is another process: %w", fs.ErrNotExist)
		}
		old = nil
	}
	maps, isAny, exceeded := d.maps()
	if exceeded != nil && !errors.Is(exceeded, limit.ErrExceeded) {
		return nil, exceeded
	}
	if !isAny {
		t, shared, err := d.openThread()
		if err == nil {
			defer t.Close()
			d, maps = t, shared
		} else if !ofKernel { // it ends, whether it is a zombie already or not
			return nil, err
		}
	}
	if exceeded != nil {
		ps.cache.limits.Report(pid, exceeded, "code in its mappings beyond that has no names")
	}
	s := &snapshot{pid: pid, seen: monotonic(), start: start, perfPath: perfMapPath(d.innerPID(pid)), maps: maps}
	ps.complete(s, old, d)
	return s, nil
}

// complete finds the files of s, which follows old.
func (ps *Processes) complete(s, old *snapshot, d procDir) {
	s.root = ps.shareRoot(d.path)
	s.roots = ps.roots(s.root)
	s.program, _ = inodeOf(d.path + "/exe")
	for i := range s.maps {
		if !ps.reuse(&s.maps[i], old) {
			ps.find(&s.maps[i], s, d)
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

// reuse takes the module of the same mapping of an older snapshot.
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

// maxUnmapped bounds the mappings that are remembered after they have gone.
const maxUnmapped = 4096

// keepUnmapped takes over what the process has unmapped since, by dlclose or
// exec: addresses that were sampled before still lie there.
func (ps *Processes) keepUnmapped(s, old *snapshot) {
	now := len(s.maps)
	for _, o := range old.maps {
		if o.module == nil || len(s.maps)-now >= maxUnmapped || overlaps(s.maps[:now], o) {
			continue
		}
		ps.cache.retain(o.module)
		s.maps = append(s.maps, o)
	}
	sortMaps(s.maps)
}

// overlaps reports whether one of maps, ordered by address, overlaps o.
func overlaps(maps []mapping, o mapping) bool {
	i, _ := slices.BinarySearchFunc(maps, o.start, func(m mapping, start uint64) int {
		return compareBool(m.end > start, m.end <= start)
	})
	return i < len(maps) && maps[i].start < o.end
}

// born is when the process began, or a little earlier: the two clocks differ
// by a tick, and the wall clock may have been set.
func (s *snapshot) born() time.Time {
	const ticks, slack = 100, 2 * time.Second // USER_HZ of all architectures here
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return time.Time{}
	}
	age := time.Duration(boot.Nano()) - time.Duration(s.start)*(time.Second/ticks)
	return time.Now().Add(-age - slack)
}

// bytes is the memory of the snapshot. Mappings of a file that follow one another share its path.
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

// isLike tells that both have the same mappings, and no files of a JIT compiler, which it
// goes on writing.
func (s *snapshot) isLike(o *snapshot) bool {
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

// mapping returns the mapping that holds addr, or nil.
func (s *snapshot) mapping(addr uint64) *mapping {
	i, _ := slices.BinarySearchFunc(s.maps, addr, func(m mapping, addr uint64) int {
		return compareBool(m.end > addr, m.end <= addr)
	})
	if i == len(s.maps) || s.maps[i].start > addr {
		return nil
	}
	return &s.maps[i]
}
