package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/corescope/corescope/internal/binary"
)

// fileKey tells files apart, and versions of one that is written anew.
type fileKey struct {
	id          binary.ID
	mtime, size int64
	vdso        bool
}

// file is a program or library that processes map, and where its table is.
type file struct {
	blocks   span // none where it has no table
	segments []elf.ProgHeader
	refs     int // processes
}

// code is what was read of a file.
type code struct {
	rows     []Row
	segments []elf.ProgHeader
}

// read makes the table of a file; path leads to it, if it may be a Go program. debug/elf may panic on files made to that end, which is
// why it is called by Parse, or for the kernel's own.
func (c *code) read(f *elf.File, path string, most int) (err error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			c.segments = append(c.segments, p.ProgHeader)
		}
	}
	if c.rows, err = frameRows(f, most); err != nil || !isGo(f) {
		return err
	}
	own, err := goRows(path, f.Machine, most)
	c.rows = merge(c.rows, own)
	return err
}

// isGo tells whether it is a program with functions of Go, which all have this section.
func isGo(f *elf.File) bool {
	return f.Section(".go.buildinfo") != nil || f.Section(".gopclntab") != nil
}

// bias is what addresses of a mapping that begins at start have over those in the file.
func (f *file) bias(start, offset uint64) (bias uint64, ok bool) {
	page := uint64(os.Getpagesize())
	for _, p := range f.segments {
		if begin := p.Off &^ (page - 1); offset >= begin && offset < p.Off+p.Filesz && p.Vaddr+p.Memsz <= math.MaxUint32 {
			return start - (offset - p.Off + p.Vaddr), true
		}
	}
	return 0, false
}

// openKey opens a mapped file, and says which it is.
func openKey(m *binary.Mapped) (*binary.File, fileKey, error) {
	f, err := m.Open()
	if err != nil {
		return nil, fileKey{}, err
	}
	info, err := os.Stat(f.Name())
	if err != nil {
		f.Close()
		return nil, fileKey{}, fmt.Errorf("look at %s: %w", m.Path, err)
	}
	return f, fileKey{id: f.ID, mtime: info.ModTime().UnixNano(), size: info.Size()}, nil
}

// vdso is the file that the kernel itself maps into processes: of our own process, as all of
// the same size are the same.
type vdso struct {
	size uint64
	code code
}

const vdsoName = "[vdso]"

// maxVDSO bounds its size.
const maxVDSO = 64 << 10

func readVDSO(most int) (*vdso, error) {
	own, err := binary.Executable(uint32(os.Getpid()))
	if err != nil {
		return nil, err
	}
	for _, m := range own {
		if m.Path != vdsoName || m.End-m.Start > maxVDSO {
			continue
		}
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		defer memory.Close()
		data := make([]byte, m.End-m.Start)
		if _, err := memory.ReadAt(data, int64(m.Start)); err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		v := &vdso{size: m.End - m.Start}
		return v, v.code.read(f, "", most)
	}
	return nil, errors.New("the process has no vDSO")
}
