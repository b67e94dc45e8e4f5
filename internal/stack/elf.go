package stack

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

var errNotELF = errors.New("not an ELF file")

// image is an open ELF file, or an ELF image in memory.
type image struct {
	*elf.File
	path string // for errors
	data io.ReaderAt
	size int64
}

// segment is a part of a file that is mapped executable.
type segment struct {
	offset, vaddr, size uint64
}

func openImage(r io.ReaderAt, size int64, path string) (*image, error) {
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := r.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return nil, errNotELF
	}
	f, err := limit.ELF(r, path)
	if err != nil {
		return nil, fmt.Errorf("parse ELF header: %w", err)
	}
	return &image{f, path, r, size}, nil
}

// read reads a part of the file. More than maxBytes are an error.
func (m *image) read(what string, offset, size uint64, maxBytes int64) ([]byte, error) {
	if size > uint64(maxBytes) {
		return nil, &limit.Error{Input: what + " of " + m.path, Max: maxBytes, Unit: "bytes"}
	}
	if offset > uint64(m.size) || size > uint64(m.size)-offset {
		return nil, fmt.Errorf("read %s of %s: offset %d, size %d is outside the file", what, m.path, offset, size)
	}
	b := make([]byte, size)
	if _, err := m.data.ReadAt(b, int64(offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s of %s: %w", what, m.path, err)
	}
	return b, nil
}

// named returns the contents of a section, or nil if there is no section with that name.
func (m *image) named(name string, maxBytes int64) ([]byte, error) {
	s := m.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	return limit.Section(s, m.path, maxBytes)
}

// segments lists the executable segments, or all loaded segments if none is executable.
func (m *image) segments() []segment {
	var code, all []segment
	for _, p := range m.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		s := segment{p.Off, p.Vaddr, p.Filesz}
		all = append(all, s)
		if p.Flags&elf.PF_X != 0 {
			code = append(code, s)
		}
	}
	if code == nil {
		return all
	}
	return code
}

// buildID returns the GNU build-id in hexadecimal, or "".
func (m *image) buildID() string {
	for _, s := range m.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		if b, err := limit.Section(s, m.path, limit.Notes); err == nil {
			if id := buildIDNote(b, m.ByteOrder); id != "" {
				return id
			}
		}
	}
	for _, p := range m.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		if b, err := m.read("note", p.Off, p.Filesz, limit.Notes); err == nil {
			if id := buildIDNote(b, m.ByteOrder); id != "" {
				return id
			}
		}
	}
	return ""
}

func buildIDNote(b []byte, order binary.ByteOrder) string {
	const header, typeBuildID = 12, 3
	for len(b) >= header {
		name, desc := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:]))
		kind := order.Uint32(b[8:])
		at := header + align4(name)
		if at+desc > uint64(len(b)) {
			break
		}
		if kind == typeBuildID && string(b[header:header+name]) == "GNU\x00" {
			return hex.EncodeToString(b[at : at+desc])
		}
		b = b[min(at+align4(desc), uint64(len(b))):]
	}
	return ""
}

func align4(n uint64) uint64 { return (n + 3) &^ 3 }

// functions returns a table of the function symbols in .symtab or .dynsym, or nil if there are
// none. Symbols of .symtab without a size end at the next symbol or at the end of their section.
// Symbols of .dynsym without a size are omitted: .dynsym lacks the functions that are not exported,
// so the symbol would cover these as well.
func (m *image) functions(kind elf.SectionType) (*table, error) {
	s := m.SectionByType(kind)
	if s == nil || int(s.Link) >= len(m.Sections) {
		return nil, nil
	}
	names, err := limit.Section(m.Sections[s.Link], m.path, limit.SymbolNames)
	if err != nil {
		return nil, err
	}
	symbols, err := m.decode(s, names, kind == elf.SHT_SYMTAB)
	if err != nil {
		return nil, err
	}
	t := newTable(symbols, names)
	if len(t.starts) == 0 {
		return nil, nil
	}
	return t, nil
}

// decode reads the function symbols of a symbol section. Symbols without a size are omitted unless
// the section is complete.
func (m *image) decode(s *elf.Section, names []byte, complete bool) ([]symbol, error) {
	entry := elf.Sym64Size
	if m.Class == elf.ELFCLASS32 {
		entry = elf.Sym32Size
	}
	if s.FileSize/uint64(entry) > limit.Symbols {
		return nil, &limit.Error{Input: fmt.Sprintf("section %s of %s", s.Name, m.path), Max: limit.Symbols, Unit: "symbols"}
	}
	in := bufio.NewReaderSize(io.NewSectionReader(s, 0, int64(s.FileSize)), int(min(s.FileSize, 64<<10)))
	symbols := make([]symbol, 0, s.FileSize/uint64(entry))
	for b := make([]byte, entry); ; {
		if _, err := io.ReadFull(in, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return symbols, nil
		} else if err != nil {
			return nil, fmt.Errorf("read section %s of %s: %w", s.Name, m.path, err)
		}
		s, ok := m.symbol(m.entry(b), names)
		if ok && (complete || !s.open) {
			symbols = append(symbols, s)
		}
	}
}

// entry decodes a symbol of a 32-bit or 64-bit file.
func (m *image) entry(b []byte) elf.Sym64 {
	o := m.ByteOrder
	if m.Class == elf.ELFCLASS32 {
		return elf.Sym64{
			Name: o.Uint32(b), Value: uint64(o.Uint32(b[4:])), Size: uint64(o.Uint32(b[8:])),
			Info: b[12], Other: b[13], Shndx: o.Uint16(b[14:]),
		}
	}
	return elf.Sym64{
		Name: o.Uint32(b), Info: b[4], Other: b[5], Shndx: o.Uint16(b[6:]),
		Value: o.Uint64(b[8:]), Size: o.Uint64(b[16:]),
	}
}

// symbol converts a symbol if it names code in its section. Symbols without a type are included,
// because functions in assembly often have none; local ones can also be labels (newTable).
func (m *image) symbol(e elf.Sym64, names []byte) (symbol, bool) {
	if e.Shndx == uint16(elf.SHN_UNDEF) || int(e.Shndx) >= len(m.Sections) {
		return symbol{}, false
	}
	section := m.Sections[e.Shndx]
	if section.Flags&elf.SHF_EXECINSTR == 0 || e.Value-section.Addr >= section.Size {
		return symbol{}, false
	}
	rank, ok := symbolRank(e.Info)
	name := cstring(names, e.Name)
	if !ok || len(name) == 0 || name[0] == '$' {
		return symbol{}, false
	}
	s := symbol{start: e.Value, end: section.Addr + section.Size, name: e.Name, rank: rank, open: e.Size == 0}
	s.label = e.Info == elf.ST_INFO(elf.STB_LOCAL, elf.STT_NOTYPE)
	if s.label && name[0] == '.' { // annotations by compiler plug-ins
		return symbol{}, false
	}
	if left := s.end - s.start; !s.open && e.Size < left {
		s.end = s.start + e.Size
	}
	return s, true
}

func symbolRank(info uint8) (rank uint8, ok bool) {
	binding := elf.ST_BIND(info)
	switch elf.ST_TYPE(info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
	case elf.STT_NOTYPE:
		rank = 4
	default:
		return 0, false
	}
	switch binding {
	case elf.STB_WEAK:
		rank++
	case elf.STB_LOCAL:
		rank += 2
	}
	return rank, true
}

// count returns the number of entries of a symbol section.
func (m *image) count(kind elf.SectionType) uint64 {
	s := m.SectionByType(kind)
	if s == nil || s.Entsize == 0 {
		return 0
	}
	return s.Size / s.Entsize
}

// debugLink is the content of .gnu_debuglink: the name of the debug file, and its CRC-32.
type debugLink struct {
	name string
	crc  uint32
}

func (m *image) debugLink() debugLink {
	b, _ := m.named(".gnu_debuglink", limit.SmallSection) // an error means no debug file
	name := string(cstring(b, 0))
	at := align4(uint64(len(name)) + 1)
	if name == "" || strings.Contains(name, "/") || at+4 > uint64(len(b)) {
		return debugLink{}
	}
	return debugLink{name, m.ByteOrder.Uint32(b[at:])}
}
