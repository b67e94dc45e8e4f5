package stack

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/corescope/corescope/internal/limit"
)

// pltSuffix is appended to the name of a function to name its entry in the PLT.
const pltSuffix = "@plt"

// pltEntry is the usual size of an entry. pltBytes bounds the bytes that are read of a section,
// pltSlots the number of functions.
const (
	pltEntry = 16
	pltBytes = 16 << 20
	pltSlots = pltBytes / pltEntry
)

// linkage returns a table of the entries of the procedure linkage tables (PLT), or nil if there are
// none. A file calls functions of other files through its PLT, for which symbol tables have no
// symbols. An entry jumps to an address in the global offset table (GOT); the relocation of that
// address names the function.
func (m *image) linkage() (*table, error) {
	var names []byte
	var symbols []symbol
	slots, err := m.slots()
	if err != nil {
		return nil, err
	}
	for _, s := range m.Sections {
		if s.Name != ".plt" && s.Name != ".plt.sec" && s.Name != ".plt.got" || len(slots) == 0 {
			continue
		}
		code, err := limit.Section(s, m.path, pltBytes)
		if err != nil {
			return nil, err
		}
		step := m.pltStep(s)
		for at := uint64(0); at+step <= uint64(len(code)); at += step {
			slot, ok := m.pltSlot(code[at:min(at+pltEntry, uint64(len(code)))], s.Addr+at)
			name, isFunction := slots[slot]
			if !ok || !isFunction {
				continue
			}
			size := max(step, min(pltEntry, uint64(len(code))-at))
			if m.Machine == elf.EM_X86_64 {
				size = step
			}
			symbols = append(symbols, symbol{start: s.Addr + at, end: s.Addr + at + size, name: uint32(len(names))})
			names = append(append(append(names, name...), pltSuffix...), 0)
		}
	}
	if len(symbols) == 0 {
		return nil, nil
	}
	return newTable(symbols, names), nil
}

// pltStep returns the alignment of entries. On arm64 it is one instruction, because entries with a
// branch target or pointer authentication instructions are larger.
func (m *image) pltStep(s *elf.Section) uint64 {
	switch {
	case m.Machine == elf.EM_AARCH64:
		return 4
	case s.Name == ".plt.got" && s.Entsize == pltEntry/2:
		return pltEntry / 2
	}
	return pltEntry
}

// pltSlot returns the address in the GOT that an entry of a PLT loads its target from.
func (m *image) pltSlot(code []byte, address uint64) (uint64, bool) {
	switch m.Machine {
	case elf.EM_X86_64:
		return pltSlotX86(code, address)
	case elf.EM_AARCH64:
		return pltSlotARM64(code, address)
	}
	return 0, false
}

// pltSlotX86 decodes jmp *distance(%rip), which may follow other instructions.
func pltSlotX86(code []byte, address uint64) (uint64, bool) {
	const size = 6
	for i := 0; i+size <= len(code); i++ {
		if code[i] == 0xff && code[i+1] == 0x25 {
			distance := int32(binary.LittleEndian.Uint32(code[i+2:]))
			return address + uint64(i+size) + uint64(int64(distance)), true
		}
	}
	return 0, false
}

// pltSlotARM64 decodes adrp x16, page; ldr x17, [x16, offset].
func pltSlotARM64(code []byte, address uint64) (uint64, bool) {
	if len(code) < 8 {
		return 0, false
	}
	adrp, ldr := binary.LittleEndian.Uint32(code), binary.LittleEndian.Uint32(code[4:])
	if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
		return 0, false
	}
	pages := int64(int32(adrp>>5<<13)>>11) | int64(adrp>>29&3) // sign-extended from 21 bits
	return address&^0xfff + uint64(pages<<12) + uint64(ldr>>10&0xfff)*8, true
}

// slots returns the names of functions by the address in the GOT that their relocation writes.
func (m *image) slots() (map[uint64][]byte, error) {
	dynamic := m.SectionByType(elf.SHT_DYNSYM)
	if m.Class != elf.ELFCLASS64 || m.Section(".plt") == nil && m.Section(".plt.got") == nil ||
		dynamic == nil || int(dynamic.Link) >= len(m.Sections) {
		return nil, nil
	}
	names, err := limit.Section(m.Sections[dynamic.Link], m.path, limit.SymbolNames)
	if err != nil {
		return nil, err
	}
	slots := map[uint64][]byte{}
	for _, s := range m.Sections {
		if s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 {
			if err := m.addSlots(slots, s, dynamic, names); err != nil {
				return nil, err
			}
		}
	}
	return slots, nil
}

func (m *image) addSlots(slots map[uint64][]byte, relocations, dynamic *elf.Section, names []byte) error {
	in := bufio.NewReaderSize(io.NewSectionReader(relocations, 0, int64(relocations.FileSize)), int(min(relocations.FileSize, 64<<10)))
	for b := make([]byte, 24); ; {
		if _, err := io.ReadFull(in, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read section %s of %s: %w", relocations.Name, m.path, err)
		}
		info := m.ByteOrder.Uint64(b[8:])
		if !m.isSlot(elf.R_TYPE64(info)) {
			continue
		}
		if len(slots) == pltSlots {
			return &limit.Error{Input: "relocations of " + m.path, Max: pltSlots, Unit: "functions"}
		}
		var entry [elf.Sym64Size]byte
		if _, err := dynamic.ReadAt(entry[:], int64(elf.R_SYM64(info))*elf.Sym64Size); err != nil {
			continue // no such symbol
		}
		if name := cstring(names, m.entry(entry[:]).Name); len(name) > 0 {
			slots[m.ByteOrder.Uint64(b)] = name
		}
	}
}

// isSlot reports whether relocations of this type write the address of a function.
func (m *image) isSlot(kind uint32) bool {
	switch m.Machine {
	case elf.EM_X86_64:
		return kind == uint32(elf.R_X86_64_JMP_SLOT) || kind == uint32(elf.R_X86_64_GLOB_DAT)
	case elf.EM_AARCH64:
		return kind == uint32(elf.R_AARCH64_JUMP_SLOT) || kind == uint32(elf.R_AARCH64_GLOB_DAT)
	}
	return false
}
