// Package usdt reads USDT probes (user-space statically defined tracing, sys/sdt.h of
// SystemTap) from ELF files: the locations of the probes, their semaphores and their
// arguments. It does not depend on BPF.
package usdt

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// Site is a location of a probe in a file. A probe has several if the compiler duplicated
// its code, for example by inlining.
type Site struct {
	Provider, Name string
	// Offset is the file offset of the instruction of the probe.
	Offset uint64
	// Semaphore is the file offset of the 16-bit counter that the program checks before it
	// prepares the arguments, or 0 if there is none.
	Semaphore uint64
	// Args are the locations of the arguments at that instruction.
	Args []Arg
	// Err is the reason why Args is unknown, or nil.
	Err error
	// Operands are the arguments as in the file: SIZE@LOCATION in the syntax of the assembler.
	Operands []string
}

const (
	noteSection = ".note.stapsdt"
	baseSection = ".stapsdt.base"
	noteOwner   = "stapsdt"
	noteType    = 3
)

// Read returns the probes of a file.
func Read(f *binary.File) ([]Site, error) {
	var sites []Site
	err := f.Parse(func(e *elf.File) error {
		s := e.Section(noteSection)
		if s == nil {
			return nil
		}
		data, err := limit.Section(s, f.Path, limit.Notes)
		if err != nil {
			return err
		}
		r := reader{file: e, path: f.Path}
		for len(data) > 0 {
			var n note
			if n, data, err = nextNote(e, data); err != nil {
				return err
			}
			if n.owner != noteOwner || n.kind != noteType {
				continue
			}
			site, err := r.site(n.desc)
			if err != nil {
				return err
			}
			sites = append(sites, site)
		}
		return nil
	})
	return sites, err
}

var errMalformed = errors.New("malformed note")

type note struct {
	owner string
	kind  uint32
	desc  []byte
}

// nextNote returns the first note and the remaining data. A note consists of three numbers,
// the owner and the descriptor, each padded to a multiple of 4 bytes.
func nextNote(e *elf.File, data []byte) (n note, rest []byte, err error) {
	const header = 12
	if len(data) < header {
		return n, nil, errMalformed
	}
	owner, desc := uint64(e.ByteOrder.Uint32(data)), uint64(e.ByteOrder.Uint32(data[4:]))
	n.kind = e.ByteOrder.Uint32(data[8:])
	data = data[header:]
	if aligned(owner)+desc > uint64(len(data)) {
		return n, nil, errMalformed
	}
	name, _, _ := bytes.Cut(data[:owner], []byte{0})
	n.owner = string(name)
	n.desc = data[aligned(owner):][:desc]
	return n, data[min(aligned(owner)+aligned(desc), uint64(len(data))):], nil
}

func aligned(n uint64) uint64 { return (n + 3) &^ 3 }

// reader converts notes to sites.
type reader struct {
	file    *elf.File
	path    string
	table   *binary.Symbols
	symbols map[string]uint64 // that arguments refer to
	// exceeded is the limit because of which symbols are missing.
	exceeded error
}

// site decodes the descriptor of a note: the addresses of the probe, of the base section at
// link time and of the semaphore, then provider, name and arguments.
func (r *reader) site(desc []byte) (Site, error) {
	const addresses = 24
	if len(desc) < addresses {
		return Site{}, errMalformed
	}
	texts := bytes.SplitN(desc[addresses:], []byte{0}, 4)
	if len(texts) < 4 {
		return Site{}, errMalformed
	}
	order := r.file.ByteOrder
	loc, base, semaphore := order.Uint64(desc), order.Uint64(desc[8:]), order.Uint64(desc[16:])
	delta := r.relocation(base)
	s := Site{Provider: string(texts[0]), Name: string(texts[1])}
	var ok bool
	if s.Offset, ok = binary.Offset(r.file, loc+delta); !ok {
		return s, fmt.Errorf("address of %s:%s is in no segment of the file: %w", s.Provider, s.Name, errMalformed)
	}
	if semaphore != 0 {
		if s.Semaphore, ok = binary.Offset(r.file, semaphore+delta); !ok {
			return s, fmt.Errorf("semaphore of %s:%s is in no segment of the file: %w", s.Provider, s.Name, errMalformed)
		}
	}
	s.Operands = operands(string(texts[2]))
	if s.Args, s.Err = r.args(string(texts[2]), loc+delta); s.Err != nil && r.exceeded != nil {
		s.Err = r.exceeded
	}
	return s, nil
}

// relocation returns by how much tools like prelink have shifted the addresses of the file
// after linking: they update the address of the base section, but not the notes.
func (r *reader) relocation(base uint64) uint64 {
	s := r.file.Section(baseSection)
	if s == nil || base == 0 {
		return 0
	}
	return s.Addr - base
}

// maxSymbols bounds the different symbols in the arguments of a file: all symbols are searched for
// each.
const maxSymbols = 256

// symbol returns the address of an object or function named in an argument. It sets exceeded if it
// returns false because of a limit.
func (r *reader) symbol(name string) (addr uint64, ok bool) {
	if addr, isKnown := r.symbols[name]; isKnown {
		return addr, addr != 0
	}
	if len(r.symbols) >= maxSymbols {
		r.exceeded = &limit.Error{Input: "arguments of USDT probes in " + r.path, Max: maxSymbols, Unit: "symbols"}
		return 0, false
	}
	if r.symbols == nil {
		r.symbols = map[string]uint64{}
	}
	if r.table == nil {
		r.table, r.exceeded = r.readSymbols()
	}
	r.symbols[name] = 0
	for i := range r.table.Len() {
		s := r.table.At(i)
		if elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF && r.table.Name(&s) == name {
			r.symbols[name] = s.Value
			return s.Value, true
		}
	}
	return 0, false
}

// readSymbols reads .symtab, which has all symbols, or the symbol table of a stripped file.
func (r *reader) readSymbols() (*binary.Symbols, error) {
	kind := elf.SHT_SYMTAB
	if r.file.SectionByType(kind) == nil {
		kind = elf.SHT_DYNSYM
	}
	t, err := binary.ReadSymbols(r.file, kind, r.path)
	if err != nil {
		return &binary.Symbols{}, err
	}
	return t, nil
}
