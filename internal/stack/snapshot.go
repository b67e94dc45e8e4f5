package stack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// snapshot is what was read of a process while it lived: enough to name its
// addresses after it has exited.
type snapshot struct {
	start    uint64  // when the process began, in clock ticks since boot
	root     *root   // nil if it may not be opened
	roots    []*root // where its files may be found: there, and below our own
	maps     []mapping
	perf     *module // its perf map, if it has one
	perfPath string
}

// procDir is a directory of /proc held open, so that all that is read below
// path is of one process even if its pid is given to another.
type procDir struct {
	file *os.File
	path string
}

func openProc(pid int) (procDir, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return procDir{}, err
	}
	return procDir{f, fmt.Sprintf("/proc/self/fd/%d", f.Fd())}, nil
}

func (d procDir) Close() error { return d.file.Close() }

func (d procDir) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(d.path, name))
}

// startTime is field 22 of stat; the second one, in parentheses, may hold
// anything.
func (d procDir) startTime() (uint64, error) {
	const field = 22 - 3
	b, err := d.read("stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= field {
		return 0, errors.New("malformed stat")
	}
	return strconv.ParseUint(string(fields[field]), 10, 64)
}

// innerPID is the last number of NSpid (4.1 and later), or pid.
func (d procDir) innerPID(pid int) int {
	status, err := d.read("status")
	if err != nil {
		return pid
	}
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		pids := bytes.Fields(rest)
		if n, err := strconv.Atoi(string(pids[max(len(pids)-1, 0)])); err == nil {
			return n
		}
	}
	return pid
}

// maps returns the executable mappings. The first thread of a process may exit
// before the others, and shows none from then on: theirs are the same.
func (d procDir) maps() ([]byte, error) {
	b, err := d.read("maps")
	if err != nil || len(b) > 0 {
		return b, err
	}
	tasks, _ := os.ReadDir(filepath.Join(d.path, "task"))
	for _, task := range tasks {
		b, err := d.read(filepath.Join("task", task.Name(), "maps"))
		if err == nil && len(b) > 0 {
			return b, nil
		}
	}
	return nil, nil
}

// reasonOf classifies an error of reading below /proc/PID.
func reasonOf(err error) Reason {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Exited
	}
	return Unreadable
}

// read takes a snapshot of a process. Mappings that old has as well are taken
// from there, as long as it is of the same process.
func (ps *Processes) read(pid int, old *snapshot) (*snapshot, error) {
	d, err := openProc(pid)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	start, err := d.startTime()
	if err != nil {
		return nil, err
	}
	lines, err := d.maps()
	if err != nil {
		return nil, err
	}
	s := &snapshot{start: start, perfPath: perfMapPath(d.innerPID(pid)), maps: parseMaps(lines)}
	s.root = ps.shareRoot(d)
	s.roots = ps.roots(s.root)
	if old != nil && old.start != start {
		old = nil
	}
	for i := range s.maps {
		if !ps.reuse(&s.maps[i], old) {
			ps.find(&s.maps[i], s, d)
		}
	}
	if old != nil {
		ps.keepUnmapped(s, old)
	}
	s.perf = ps.perfMap(s)
	return s, nil
}

// reuse takes the module of the same mapping of an older snapshot.
func (ps *Processes) reuse(m *mapping, old *snapshot) bool {
	if old == nil {
		return false
	}
	o := old.mapping(m.start)
	if o == nil || o.module == nil || o.start != m.start || o.end != m.end ||
		o.offset != m.offset || o.inode != m.inode || o.path != m.path {
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
	slices.SortFunc(s.maps, func(a, b mapping) int {
		return compareBool(a.start > b.start, b.start > a.start)
	})
}

// overlaps reports whether one of maps, ordered by address, overlaps o.
func overlaps(maps []mapping, o mapping) bool {
	i, _ := slices.BinarySearchFunc(maps, o.start, func(m mapping, start uint64) int {
		return compareBool(m.end > start, m.end <= start)
	})
	return i < len(maps) && maps[i].start < o.end
}

// find gives a mapping its module, or the reason why it has none.
func (ps *Processes) find(m *mapping, s *snapshot, d procDir) {
	if m.path == "[vdso]" {
		m.module = ps.vdso(m, d)
		return
	}
	if !m.isFile() {
		return
	}
	h, err := ps.openMapped(m, s, d)
	switch {
	case errors.Is(err, errIrregular): // device memory, /dev/zero
		m.reason = NoSymbols
	case err != nil:
		m.reason = Unreadable
		if _, err := d.startTime(); err != nil {
			m.reason = reasonOf(err)
		}
	default:
		m.module = ps.cache.module(moduleKey{file: h.id, root: s.rootID()}, h, nil)
	}
}

// openMapped opens the mapped file itself, which works for deleted ones, for
// memfds and in other mount namespaces, but takes CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN. Without it the path has to do, if it leads to the same inode;
// the device in maps is not what stat says on btrfs and overlayfs.
func (ps *Processes) openMapped(m *mapping, s *snapshot, d procDir) (*handle, error) {
	h, err := handleAt(fmt.Sprintf("%s/map_files/%x-%x", d.path, m.start, m.end))
	if err == nil || errors.Is(err, errIrregular) {
		return h, err
	}
	for _, r := range s.roots {
		h, pathErr := r.handle(m.file())
		if pathErr != nil {
			continue
		}
		if h.id.inode == m.inode {
			return h, nil
		}
		h.Close()
	}
	return nil, err
}

// vdso reads the vDSO out of the memory of the process, at once, as no file
// holds it; most processes have the same.
func (ps *Processes) vdso(m *mapping, d procDir) *module {
	const maxVDSO = 64 << 10
	f, err := os.Open(filepath.Join(d.path, "mem"))
	if err != nil {
		m.reason = Unreadable
		return nil
	}
	defer f.Close()
	b := make([]byte, min(m.end-m.start, maxVDSO))
	if _, err := f.ReadAt(b, int64(m.start)); err != nil {
		m.reason = Unreadable
		return nil
	}
	return ps.cache.module(moduleKey{kind: kindVDSO, sum: sha256.Sum256(b)}, nil, b)
}

// perfMap finds the perf map that the process writes, not one that an earlier
// process of that pid has left, as is common in containers.
func (ps *Processes) perfMap(s *snapshot) *module {
	if s.root == nil {
		return nil
	}
	h, err := s.root.handle(s.perfPath)
	if err != nil {
		return nil
	}
	if time.Unix(0, h.id.mtime).Before(s.born()) {
		h.Close()
		return nil
	}
	return ps.cache.module(moduleKey{file: h.id, root: s.root.id, kind: kindPerfMap}, h, nil)
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

func (s *snapshot) rootID() rootID {
	if s.root == nil {
		return rootID{}
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
