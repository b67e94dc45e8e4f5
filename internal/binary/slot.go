package binary

import (
	"debug/elf"
	"encoding/binary"

	"github.com/corescope/corescope/internal/limit"
)

// Slot is a word of memory that the dynamic loader fills with the address of a function, before the program
// runs or as the function is called first.
type Slot struct {
	// Address is that of the word, and Resolver, if it is not 0, that of the function which chooses what is put
	// there. Both are as symbols have them.
	Address, Resolver uint64
	// Symbol is the function's name, and Version its version, where it is looked for by name.
	Symbol, Version string
}

// Types of relocations that fill slots.
type slotTypes struct {
	byName     [3]uint32
	byResolver uint32
}

func slotTypesOf(m elf.Machine) slotTypes {
	if m == elf.EM_AARCH64 {
		return slotTypes{
			[3]uint32{uint32(elf.R_AARCH64_JUMP_SLOT), uint32(elf.R_AARCH64_GLOB_DAT), uint32(elf.R_AARCH64_ABS64)},
			uint32(elf.R_AARCH64_IRELATIVE),
		}
	}
	return slotTypes{
		[3]uint32{uint32(elf.R_X86_64_JMP_SLOT), uint32(elf.R_X86_64_GLOB_DAT), uint32(elf.R_X86_64_64)},
		uint32(elf.R_X86_64_IRELATIVE),
	}
}

// Slots lists what the loader fills in for the file.
//
// Returns ErrForeign.
func (f *File) Slots() ([]Slot, error) {
	if f.slots != nil {
		return f.slots, nil
	}
	err := f.Parse(func(e *elf.File) error {
		symbols, err := ReadSymbols(e, elf.SHT_DYNSYM, f.Path)
		if err != nil {
			return err
		}
		f.slots = []Slot{}
		for _, s := range e.Sections {
			if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
				continue
			}
			data, err := limit.Section(s, f.Path, limit.Relocations)
			if err != nil {
				return err
			}
			f.slots = appendSlots(f.slots, data, e.ByteOrder, slotTypesOf(e.Machine), symbols)
		}
		return nil
	})
	return f.slots, err
}

// appendSlots reads entries of three words: the place, the symbol's number above the type, and what is added.
func appendSlots(slots []Slot, data []byte, order binary.ByteOrder, types slotTypes, symbols *Symbols) []Slot {
	const size = 24
	for ; len(data) >= size; data = data[size:] {
		s := Slot{Address: order.Uint64(data)}
		info, addend := order.Uint64(data[8:]), order.Uint64(data[16:])
		switch kind := uint32(info); {
		case kind == types.byResolver:
			s.Resolver = addend
		case kind != types.byName[0] && kind != types.byName[1] && kind != types.byName[2], addend != 0:
			continue
		default:
			i := int(info >> 32)
			if i == 0 || i >= symbols.Len() {
				continue
			}
			symbol := symbols.At(i)
			s.Symbol = symbols.Name(&symbol)
			s.Version, _ = symbols.Version(i)
		}
		slots = append(slots, s)
	}
	return slots
}
