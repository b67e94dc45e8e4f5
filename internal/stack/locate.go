package stack

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// findModule sets the module of a mapping, or the reason why it has none.
func (ps *Processes) findModule(m *mapping, s *snapshot, d procDir) {
	if m.path == "[vdso]" {
		m.module = ps.vdso(m, d)
		return
	}
	if !m.isFile() {
		return
	}
	h, err := ps.openMapped(m, s, d)
	switch {
	case errors.Is(err, errIrregular): // for example a device or /dev/zero
		m.reason = NoSymbols
	case err != nil:
		m.reason = Unreadable
		if _, _, err := d.stat(); err != nil {
			m.reason = reasonOf(err)
		}
	default:
		m.module = ps.cache.module(moduleKey{file: h.id, root: s.rootID()}, h, nil)
	}
}

// openMapped opens the mapped file itself with /proc/PID/map_files. That also works for deleted
// files, memfds and other mount namespaces, but needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
// Without these it opens /proc/PID/exe or the path, if the inode number is that of the mapping. The
// device is not compared, because on btrfs and overlayfs maps and stat(2) report different ones.
func (ps *Processes) openMapped(m *mapping, s *snapshot, d procDir) (*handle, error) {
	h, err := handleAt(fmt.Sprintf("%s/map_files/%x-%x", d.path, m.start, m.end))
	if err == nil || errors.Is(err, errIrregular) {
		return h, err
	}
	if h := m.check(handleAt(d.path + "/exe")); h != nil {
		return h, nil
	}
	for _, r := range s.roots {
		if h := m.check(r.handle(m.path)); h != nil {
			return h, nil
		}
	}
	return nil, err
}

// check returns h if it is the file of the mapping; otherwise it closes h and returns nil.
func (m *mapping) check(h *handle, err error) *handle {
	if err != nil {
		return nil
	}
	if h.id.inode != m.inode {
		h.Close()
		return nil
	}
	return h
}

// vdso returns the module of the vDSO of a process. Most processes have the same vDSO.
func (ps *Processes) vdso(m *mapping, d procDir) *module {
	b, err := d.vdso(m.start, m.end)
	if err != nil {
		m.reason = Unreadable
		return nil
	}
	return ps.cache.vdso(b)
}

// vdso reads the vDSO from the memory of the process, because it is not in a file.
func (d procDir) vdso(start, end uint64) ([]byte, error) {
	const maxVDSO = 64 << 10
	f, err := os.Open(filepath.Join(d.path, "mem"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, min(end-start, maxVDSO))
	if _, err := f.ReadAt(b, int64(start)); err != nil {
		return nil, err
	}
	return b, nil
}

func (c *cache) vdso(memory []byte) *module {
	return c.module(moduleKey{kind: kindVDSO, sum: sha256.Sum256(memory)}, nil, memory)
}

// findJIT opens the jitdumps and the perf map of the process. Dumps grow, so it opens them for each
// snapshot.
func (ps *Processes) findJIT(s *snapshot, d procDir) {
	for i := range s.maps {
		m := &s.maps[i]
		if !m.isFile() || !isJITDump(m.path) || s.hasJIT(m.path) {
			continue
		}
		if h, err := ps.openMapped(m, s, d); err == nil {
			s.addJIT(m.path, ps.cache.module(moduleKey{file: h.id, root: s.rootID(), kind: kindJITDump}, h, nil))
		}
	}
	if m := ps.perfMap(s); m != nil {
		s.addJIT(s.perfPath, m)
	}
}

func (s *snapshot) addJIT(path string, m *module) { s.jits = append(s.jits, jitFile{path, m}) }

func (s *snapshot) hasJIT(path string) bool {
	return slices.ContainsFunc(s.jits, func(j jitFile) bool { return j.path == path })
}

// isEarlier reports whether the process has perf maps or jitdumps, and was read before a time.
func (s *snapshot) isEarlier(at uint64) bool { return s != nil && len(s.jits) > 0 && s.takenAt < at }

// updateJIT opens the jitdumps and the perf map of a process that has exited, which can have grown
// since they were read.
func (ps *Processes) updateJIT(s *snapshot) {
	s.takenAt = monotonic()
	if s.root == nil {
		return
	}
	for i := range s.jits {
		j := &s.jits[i]
		old := j.module.key
		h, err := s.root.handle(j.path)
		if err != nil {
			continue // it is deleted
		}
		if h.id.dev != old.file.dev || h.id.inode != old.file.inode {
			h.Close()
			continue
		}
		module := ps.cache.module(moduleKey{file: h.id, root: old.root, kind: old.kind}, h, nil)
		ps.cache.release(j.module)
		j.module = module
	}
}

// perfMap opens the perf map of the process. It ignores one that was written before the process
// started: in containers, an earlier process with the same PID often leaves one.
func (ps *Processes) perfMap(s *snapshot) *module {
	if s.root == nil {
		return nil
	}
	h, err := s.root.handle(s.perfPath)
	if err != nil {
		return nil
	}
	if time.Unix(0, h.id.mtime).Before(s.startTime()) {
		h.Close()
		return nil
	}
	return ps.cache.module(moduleKey{file: h.id, root: s.root.id, kind: kindPerfMap}, h, nil)
}
