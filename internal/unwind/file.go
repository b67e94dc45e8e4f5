package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// fileKey tells files apart, and versions of one that is written anew. Several ids of the
// kernel's can be of one file, as with overlayfs.
type fileKey struct {
	id          binary.ID
	mtime, size int64
	vdso        bool
	kernel      binary.KernelID // of what is no regular file
}

// code is what was read of a file.
type code struct {
	rows     []Row
	segments []elf.ProgHeader
}

// readRows makes the table of a file, by file offsets.
func readRows(f *binary.File, most int) ([]Row, error) {
	var c code
	if err := f.Parse(func(e *elf.File) error { return c.read(e, f.Name(), most) }); err != nil {
		return nil, err
	}
	return c.byOffset(), nil
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

// byOffset turns the addresses of rows into file offsets, which do not depend on how a file
// is mapped. What lies in no segment that holds code is left out.
func (c *code) byOffset() []Row {
	slices.SortFunc(c.segments, func(a, b elf.ProgHeader) int { return cmp.Compare(a.Off, b.Off) })
	var rows []Row
	end := uint64(0)
	for _, p := range c.segments {
		if p.Off < end || p.Filesz > math.MaxUint32 || p.Off+p.Filesz > math.MaxUint32 || p.Vaddr+p.Filesz < p.Vaddr {
			continue // they overlap, or are too large: no linker does that
		}
		end = p.Off + p.Filesz
		rule := Rule(0) // that holds at the segment's begin
		i, _ := slices.BinarySearchFunc(c.rows, p.Vaddr, func(r Row, vaddr uint64) int { return cmp.Compare(uint64(r.PC), vaddr) })
		if i > 0 {
			rule = c.rows[i-1].Rule
		}
		rows = appendRow(rows, uint32(p.Off), rule)
		for ; i < len(c.rows) && uint64(c.rows[i].PC)-p.Vaddr < p.Filesz; i++ {
			rows = appendRow(rows, uint32(uint64(c.rows[i].PC)-p.Vaddr+p.Off), c.rows[i].Rule)
		}
		rows = appendRow(rows, uint32(end), 0)
	}
	if len(rows) == 1 { // without a rule
		return nil
	}
	return rows
}

// keyOf says which file it is.
func keyOf(f *binary.File) (fileKey, error) {
	info, err := os.Stat(f.Name())
	if err != nil {
		return fileKey{}, fmt.Errorf("stat %s: %w", f.Path, err)
	}
	return fileKey{id: f.ID, mtime: info.ModTime().UnixNano(), size: info.Size()}, nil
}

// vdso is the code that the kernel maps into processes, as our own process has it: the same
// for all 64-bit ones.
type vdso struct{ code code }

func (v *vdso) rows() []Row {
	if v == nil {
		return nil
	}
	return v.code.byOffset()
}

const vdsoName = "[vdso]"

// maxVDSO bounds its size.
const maxVDSO = 64 << 10

func readVDSO(most int) (*vdso, error) {
	own, err := binary.OwnExecutable()
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
		f, err := limit.ELF(bytes.NewReader(data), vdsoName)
		if err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		v := &vdso{}
		return v, v.code.read(f, "", most)
	}
	return nil, errors.New("the process has no vDSO")
}
