package binary

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

// Symbols is a symbol table of a file. Package elf also reads symbol tables, but copies the name of
// each symbol and version: a crafted file of a few megabytes could take terabytes of memory.
type Symbols struct {
	data, versions []byte
	names          string
	order          binary.ByteOrder
	versionNames   map[uint16]uint32 // version index → offset in names
}

// ReadSymbols reads the symbol table of type SHT_SYMTAB or SHT_DYNSYM. It is empty if the file has
// none. path is used in errors.
//
// Returns a [limit.Error] if the table is too large.
func ReadSymbols(e *elf.File, kind elf.SectionType, path string) (*Symbols, error) {
	s := e.SectionByType(kind)
	if s == nil || e.Class != elf.ELFCLASS64 {
		return &Symbols{}, nil
	}
	if int(s.Link) >= len(e.Sections) {
		return nil, fmt.Errorf("read %s: section %d with the symbol names is missing", kind, s.Link)
	}
	data, err := limit.Section(s, path, limit.Symbols*elf.Sym64Size)
	if err != nil {
		return nil, err
	}
	names, err := limit.Section(e.Sections[s.Link], path, limit.SymbolNames)
	if err != nil {
		return nil, err
	}
	t := &Symbols{data: data, names: string(names), order: e.ByteOrder}
	if kind == elf.SHT_DYNSYM {
		return t, t.readVersions(e, path)
	}
	return t, nil
}

// Len returns the number of symbols. The first one is always undefined.
func (t *Symbols) Len() int { return len(t.data) / elf.Sym64Size }

// At returns the symbol at index i, which must be below Len.
func (t *Symbols) At(i int) elf.Sym64 {
	b, o := t.data[i*elf.Sym64Size:], t.order
	return elf.Sym64{
		Name: o.Uint32(b), Info: b[4], Other: b[5], Shndx: o.Uint16(b[6:]), Value: o.Uint64(b[8:]), Size: o.Uint64(b[16:]),
	}
}

// maxName is the maximum length of a name, in bytes. C++ templates have the longest names.
const maxName = 64 << 10

// Name returns the name of a symbol, "" if it has none. It shares the memory of the table.
func (t *Symbols) Name(s *elf.Sym64) string { return t.text(s.Name) }

func (t *Symbols) text(offset uint32) string {
	if uint64(offset) >= uint64(len(t.names)) {
		return ""
	}
	rest := t.names[offset:min(uint64(offset)+maxName, uint64(len(t.names)))]
	name, _, isWhole := strings.Cut(rest, "\x00")
	if !isWhole {
		return ""
	}
	return name
}

// Version returns the version of a dynamic symbol, "" if it has none. isOld reports that it is not
// the default version, the one that new programs are linked with.
func (t *Symbols) Version(i int) (version string, isOld bool) {
	const hidden = 0x8000
	if len(t.versions) < 2*i+2 {
		return "", false
	}
	index := t.order.Uint16(t.versions[2*i:])
	if name, ok := t.versionNames[index&^hidden]; ok {
		version = t.text(name)
	}
	return version, index&hidden != 0
}

// readVersions reads the versions that the file defines and needs. If both have the same index, the
// needed version takes precedence, as in package elf.
func (t *Symbols) readVersions(e *elf.File, path string) (err error) {
	s := e.SectionByType(elf.SHT_GNU_VERSYM)
	if s == nil {
		return nil
	}
	if t.versions, err = limit.Section(s, path, 2*limit.Symbols); err != nil {
		return err
	}
	t.versionNames = map[uint16]uint32{}
	if s := e.SectionByType(elf.SHT_GNU_VERDEF); s != nil {
		data, err := limit.Section(s, path, limit.Notes)
		if err != nil {
			return err
		}
		t.readDefined(data)
	}
	if s := e.SectionByType(elf.SHT_GNU_VERNEED); s != nil {
		data, err := limit.Section(s, path, limit.Notes)
		if err != nil {
			return err
		}
		t.readNeeded(data)
	}
	return nil
}

// readDefined reads Elf64_Verdef records: version, flags, index, number of names, hash, and the
// relative offsets of the first name and of the next record.
func (t *Symbols) readDefined(data []byte) {
	const size, named = 20, 8
	for at := uint64(0); at+size <= uint64(len(data)); {
		b := data[at:]
		name := at + uint64(t.order.Uint32(b[12:]))
		if name+named <= uint64(len(data)) {
			t.setVersion(t.order.Uint16(b[4:]), t.order.Uint32(data[name:]))
		}
		next := uint64(t.order.Uint32(b[16:]))
		if next < size {
			return
		}
		at += next
	}
}

// readNeeded reads Elf64_Verneed records: version, number of names, file, and the relative offsets
// of the first name and of the next record. A name (Elf64_Vernaux) has hash, flags, index, offset
// of its text, and the relative offset of the next name.
func (t *Symbols) readNeeded(data []byte) {
	const size = 16
	left := len(data) / size // bounds the names, because records can overlap
	for at := uint64(0); at+size <= uint64(len(data)); {
		b := data[at:]
		name := at + uint64(t.order.Uint32(b[8:]))
		for range t.order.Uint16(b[2:]) {
			if left--; left < 0 || name+size > uint64(len(data)) {
				break
			}
			n := data[name:]
			t.setVersion(t.order.Uint16(n[6:]), t.order.Uint32(n[8:]))
			next := uint64(t.order.Uint32(n[12:]))
			if next == 0 {
				break
			}
			name += next
		}
		next := uint64(t.order.Uint32(b[12:]))
		if next < size {
			return
		}
		at += next
	}
}

// setVersion sets the name of a version. Indices 0 and 1 mean that a symbol has no version.
func (t *Symbols) setVersion(index uint16, name uint32) {
	if index > 1 {
		t.versionNames[index] = name
	}
}
