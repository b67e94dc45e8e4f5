package stack

import (
	"debug/elf"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/corescope/corescope/internal/limit"
)

// debugTable returns the symbols of the debug file of a stripped module, or nil if there is none.
// It searches once.
func (s *symbols) debugTable(at place) (t *table) {
	if s.debugFileSearched {
		return nil
	}
	s.debugFileSearched = true
	s.eachDebugFile(at, func(m *image) bool {
		var err error
		t, err = m.functions(elf.SHT_SYMTAB)
		s.noteLimit(err)
		return t != nil
	})
	return t
}

// eachDebugFile calls use with the debug files of the module until use returns true: first with
// those of this machine, then with that of the servers.
func (s *symbols) eachDebugFile(at place, use func(*image) bool) {
	for _, r := range at.roots {
		for _, file := range s.debugFiles(at.path) {
			f, _, err := r.open(file)
			if err == nil && s.tryDebugFile(f, use) {
				return
			}
		}
	}
	if f, err := s.servers.open(s.buildID); err == nil {
		s.tryDebugFile(f, use)
	}
}

// tryDebugFile checks that f belongs to the module, calls use with it and closes it.
func (s *symbols) tryDebugFile(f *os.File, use func(*image) bool) bool {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	done, err := s.useDebugFile(f, info.Size(), use)
	s.noteLimit(err)
	return err == nil && done
}

// debugFiles lists the paths where debuggers search: by build-id, then by .gnu_debuglink.
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

// useDebugFile calls use with f if f belongs to the module: it has the same build-id or, if one of
// the two files has none, the checksum in .gnu_debuglink.
func (s *symbols) useDebugFile(f *os.File, size int64, use func(*image) bool) (done bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			done, err = false, fmt.Errorf("parse debug file: %v", p)
		}
	}()
	m, err := openImage(f, size, f.Name())
	if err != nil {
		return false, err
	}
	id := m.buildID()
	if s.buildID != "" && id != "" {
		if id != s.buildID {
			return false, fmt.Errorf("use debug file: its build-id is %s, want %s", id, s.buildID)
		}
	} else if err := s.checkLink(f, size); err != nil {
		return false, err
	}
	return use(m), nil
}

func (s *symbols) checkLink(f *os.File, size int64) error {
	if s.link.name == "" {
		return errors.New("use debug file: cannot verify it without a build-id and .gnu_debuglink")
	}
	if size > limit.DebugFile {
		return &limit.Error{Input: f.Name(), Max: limit.DebugFile, Unit: "bytes"}
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read debug file: %w", err)
	}
	if sum.Sum32() != s.link.crc {
		return fmt.Errorf("use debug file: its checksum is %08x, want %08x", sum.Sum32(), s.link.crc)
	}
	return nil
}
