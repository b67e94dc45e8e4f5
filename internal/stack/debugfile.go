package stack

import (
	"debug/elf"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"path/filepath"
)

// debugTable returns the symbols of the debug file of a stripped module, nil
// if there is none. It looks once.
func (s *symbols) debugTable(at place) *table {
	if s.searched {
		return nil
	}
	s.searched = true
	for _, r := range at.roots {
		for _, file := range s.debugFiles(at.path) {
			f, id, err := r.open(file)
			if err != nil {
				continue
			}
			t, err := s.readDebugFile(f, id.size)
			f.Close()
			if err == nil && t != nil {
				return t
			}
		}
	}
	return nil
}

// debugFiles lists where debuggers look: by build-id, then by .gnu_debuglink.
func (s *symbols) debugFiles(module string) []string {
	const debug = "/usr/lib/debug"
	var files []string
	if len(s.buildID) > 2 {
		files = append(files, fmt.Sprintf("%s/.build-id/%s/%s.debug", debug, s.buildID[:2], s.buildID[2:]))
	}
	if s.link.name != "" && filepath.IsAbs(module) {
		dir := path.Dir(module)
		files = append(files,
			path.Join(dir, s.link.name),
			path.Join(dir, ".debug", s.link.name),
			path.Join(debug, dir, s.link.name))
	}
	return files
}

// readDebugFile reads the symbols of f if it belongs to the module: it must
// have the same build-id or, where one of the two has none, the checksum that
// .gnu_debuglink asks for.
func (s *symbols) readDebugFile(f *os.File, size int64) (t *table, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, fmt.Errorf("parse debug file: %v", p)
		}
	}()
	m, err := openImage(f, size)
	if err != nil {
		return nil, err
	}
	id := m.buildID()
	if s.buildID != "" && id != "" {
		if id != s.buildID {
			return nil, fmt.Errorf("debug file has build-id %s", id)
		}
	} else if err := s.checkLink(f); err != nil {
		return nil, err
	}
	return m.functions(elf.SHT_SYMTAB)
}

func (s *symbols) checkLink(f *os.File) error {
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read debug file: %w", err)
	}
	if s.link.name == "" || sum.Sum32() != s.link.crc {
		return fmt.Errorf("debug file has checksum %08x", sum.Sum32())
	}
	return nil
}
