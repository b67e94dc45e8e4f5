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
		if _, _, err := d.stat(); err != nil {
			m.reason = reasonOf(err)
		}
	default:
		m.module = ps.cache.module(moduleKey{file: h.id, root: s.rootID()}, h, nil)
	}
}

// openMapped opens the mapped file itself, which works for deleted ones, for
// memfds and in other mount namespaces, but takes CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN. Without it the program or the path has to do, if it leads to
// the same inode; the device in maps is not what stat says on btrfs and
// overlayfs.
func (ps *Processes) openMapped(m *mapping, s *snapshot, d procDir) (*handle, error) {
	h, err := handleAt(fmt.Sprintf("%s/map_files/%x-%x", d.path, m.start, m.end))
	if err == nil || errors.Is(err, errIrregular) {
		return h, err
	}
	if h := m.same(handleAt(d.path + "/exe")); h != nil {
		return h, nil
	}
	for _, r := range s.roots {
		if h := m.same(r.handle(m.file())); h != nil {
			return h, nil
		}
	}
	return nil, err
}

// same returns what was opened if it is the file of the mapping.
func (m *mapping) same(h *handle, err error) *handle {
	if err != nil {
		return nil
	}
	if h.id.inode != m.inode {
		h.Close()
		return nil
	}
	return h
}

// vdso returns the vDSO of a process; most processes have the same.
func (ps *Processes) vdso(m *mapping, d procDir) *module {
	b, err := d.vdso(m.start, m.end)
	if err != nil {
		m.reason = Unreadable
		return nil
	}
	return ps.cache.vdso(b)
}

// vdso reads the vDSO from the memory of the process, as no file holds it.
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

// findJIT finds what the process tells of the code that it makes. A dump has grown since an
// older snapshot, so it is opened anew.
func (ps *Processes) findJIT(s *snapshot, d procDir) {
	for i := range s.maps {
		m := &s.maps[i]
		if !m.isFile() || !isJITDump(m.path) || s.hasJIT(m.file()) {
			continue
		}
		if h, err := ps.openMapped(m, s, d); err == nil {
			s.addJIT(m.file(), ps.cache.module(moduleKey{file: h.id, root: s.rootID(), kind: kindJITDump}, h, nil))
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
