package binary

import (
	"debug/elf"
	"encoding/binary"

	"github.com/corescope/corescope/internal/limit"
)

// Slot is a word of memory that the dynamic loader fills with the address of a function, at program
// start or at the first call of the function (a GOT entry, or a relocated data word).
type Slot struct {
	// Address is the address of the word. Resolver, if not 0, is the address of the function that
	// selects the value (IRELATIVE relocation). Both are virtual addresses as in symbols.
	Address, Resolver uint64
	// Symbol and Version are the name and version of the function if it is looked up by name.
	Symbol, Version string
}

// slotTypes are the relocation types that fill slots.
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

// Slots lists the slots of the file.
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

// appendSlots reads RELA entries of three words: the address, the symbol index (high half) and the
// relocation type (low half), and the addend.
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
