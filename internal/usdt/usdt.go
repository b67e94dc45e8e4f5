// Package usdt reads the probes that programs have built in (sys/sdt.h, SystemTap's
// "user-space statically defined tracing"): where they are, and where their arguments
// lie. It knows no BPF.
package usdt

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/binary"
)

// Site is one place of a probe in a file. A probe has as many as the compiler made of it.
type Site struct {
	Provider, Name string
	// Offset is the place of its instruction in the file.
	Offset uint64
	// Semaphore is the place in the file of the 16-bit count that a program looks at
	// before it goes to the trouble of a probe, or 0.
	Semaphore uint64
	// Args are where the arguments lie when the instruction is reached.
	Args []Arg
	// Err says why Args are not known, nil if they are.
	Err error
}

const (
	noteSection = ".note.stapsdt"
	baseSection = ".stapsdt.base"
	noteOwner   = "stapsdt"
	noteType    = 3
)

// Read lists the probes of a file, none where it has none.
func Read(f *binary.File) ([]Site, error) {
	var sites []Site
	err := f.Parse(func(e *elf.File) error {
		s := e.Section(noteSection)
		if s == nil {
			return nil
		}
		data, err := s.Data()
		if err != nil {
			return fmt.Errorf("read %s: %w", noteSection, err)
		}
		r := reader{file: e}
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

// nextNote cuts the first note off: three numbers, the owner and the contents, each
// filled up to 4 bytes.
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

// reader turns notes into sites.
type reader struct {
	file    *elf.File
	symbols map[string]uint64
}

// site reads the contents of a note: the addresses of the probe, of the base section as it
// was when the file was linked, and of the semaphore; provider, name and arguments.
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
	moved := r.moved(base)
	s := Site{Provider: string(texts[0]), Name: string(texts[1])}
	var ok bool
	if s.Offset, ok = binary.Offset(r.file, loc+moved); !ok {
		return s, fmt.Errorf("%s:%s is at no place of the file: %w", s.Provider, s.Name, errMalformed)
	}
	if semaphore != 0 {
		if s.Semaphore, ok = binary.Offset(r.file, semaphore+moved); !ok {
			return s, fmt.Errorf("semaphore of %s:%s is at no place of the file: %w", s.Provider, s.Name, errMalformed)
		}
	}
	s.Args, s.Err = r.args(string(texts[2]), loc+moved)
	return s, nil
}

// moved is by how much a tool like prelink has moved the file's addresses since it was
// linked: notes are not changed then, but the address of the base section is.
func (r *reader) moved(base uint64) uint64 {
	s := r.file.Section(baseSection)
	if s == nil || base == 0 {
		return 0
	}
	return s.Addr - base
}

// symbol returns the address of an object or function that an argument names.
func (r *reader) symbol(name string) (uint64, bool) {
	if r.symbols == nil {
		r.symbols = map[string]uint64{}
		all, _ := r.file.Symbols()
		exported, _ := r.file.DynamicSymbols()
		for _, s := range append(all, exported...) {
			if s.Section != elf.SHN_UNDEF {
				r.symbols[s.Name] = s.Value
			}
		}
	}
	addr, ok := r.symbols[name]
	return addr, ok
}
