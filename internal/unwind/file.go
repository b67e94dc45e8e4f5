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

// fileKey identifies a version of a file. A file can have several kernel IDs, for example on
// overlayfs.
type fileKey struct {
	id          binary.ID
	mtime, size int64
	vdso        bool
	kernel      binary.KernelID // set if it is not a regular file
}

// code is what is read of a file: rows by address, and the executable segments.
type code struct {
	rows     []Row
	segments []elf.ProgHeader
}

// readCode reads the unwind table of a file.
func readCode(f *binary.File, maxRows int) (*code, error) {
	c := &code{}
	if err := f.Parse(func(e *elf.File) error { return c.read(e, f.Name(), maxRows) }); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the unwind table of a file. path is the path of a file that can be a Go program, or
// "". debug/elf can panic on malformed files; Parse recovers from that.
func (c *code) read(f *elf.File, path string, maxRows int) (err error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			c.segments = append(c.segments, p.ProgHeader)
		}
	}
	if c.rows, err = frameRows(f, maxRows); err != nil || !isGo(f) {
		return err
	}
	own, err := goRows(path, f.Machine, maxRows)
	c.rows = merge(c.rows, own)
	return err
}

// isGo reports whether a file contains Go functions: all such files have one of these sections.
func isGo(f *elf.File) bool {
	return f.Section(".go.buildinfo") != nil || f.Section(".gopclntab") != nil
}

// tree returns the unwind table by file offset. It has no levels if there are no rows. number returns
// the index of a rule.
func (c *code) tree(number func(Rule) uint16) *tree {
	b := &builder{number: number}
	if c != nil {
		c.byOffset(b.add)
	}
	return b.finish()
}

// byOffset adds the rows with file offsets, which do not depend on where a file is mapped, instead of
// addresses. Rows outside the executable segments are dropped.
func (c *code) byOffset(add func(offset uint32, rule Rule)) {
	slices.SortFunc(c.segments, func(a, b elf.ProgHeader) int { return cmp.Compare(a.Off, b.Off) })
	end := uint64(0)
	for _, p := range c.segments {
		if p.Off < end || p.Filesz > math.MaxUint32 || p.Off+p.Filesz > math.MaxUint32 || p.Vaddr+p.Filesz < p.Vaddr {
			continue // linkers do not create segments that overlap or exceed 4 GiB
		}
		end = p.Off + p.Filesz
		rule := Rule(0) // at the start of the segment
		i, _ := slices.BinarySearchFunc(c.rows, p.Vaddr, func(r Row, vaddr uint64) int { return cmp.Compare(uint64(r.PC), vaddr) })
		if i > 0 {
			rule = c.rows[i-1].Rule
		}
		add(uint32(p.Off), rule)
		for ; i < len(c.rows) && uint64(c.rows[i].PC)-p.Vaddr < p.Filesz; i++ {
			add(uint32(uint64(c.rows[i].PC)-p.Vaddr+p.Off), c.rows[i].Rule)
		}
		add(uint32(end), 0)
	}
}

// keyOf returns the key of an open file.
func keyOf(f *binary.File) (fileKey, error) {
	info, err := os.Stat(f.Name())
	if err != nil {
		return fileKey{}, fmt.Errorf("stat %s: %w", f.Path, err)
	}
	return fileKey{id: f.ID, mtime: info.ModTime().UnixNano(), size: info.Size()}, nil
}

const vdsoName = "[vdso]"

// maxVDSO bounds the size of the vDSO in bytes.
const maxVDSO = 64 << 10

// readVDSO reads the unwind table of the vDSO as mapped by corescope's own process. All 64-bit processes
// have the same code.
func readVDSO(maxRows int) (*code, error) {
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
			return nil, fmt.Errorf("open the vDSO: %w", err)
		}
		defer memory.Close()
		data := make([]byte, m.End-m.Start)
		if _, err := memory.ReadAt(data, int64(m.Start)); err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		f, err := limit.ELF(bytes.NewReader(data), vdsoName)
		if err != nil {
			return nil, fmt.Errorf("parse the vDSO: %w", err)
		}
		c := &code{}
		return c, c.read(f, "", maxRows)
	}
	return nil, errors.New("find the vDSO: corescope's process does not map it")
}
