package code

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/corescope/corescope/internal/limit"
)

// slot is an entry of the GOT: the function whose address the dynamic linker stores there.
type slot struct {
	address  uint64 // of the function in this file, or 0 if it is in another one
	size     uint64
	resolver bool // the function is an IFUNC resolver
}

func (t *Text) isPLT(pc uint64) bool {
	for _, plt := range t.plts {
		if pc >= plt.Start && pc < plt.End {
			return true
		}
	}
	return false
}

// followPLT queues the function that a PLT entry jumps to. If the file defines the function, it is
// assumed to be the target. If another file replaces it (interposition), the return instructions of
// that function are not found.
func (g *region) followPLT(target uint64) error {
	s, ok := g.slotOf(target)
	if !ok || s.address == 0 {
		return fmt.Errorf("%w: the function continues in a function of another file", ErrHidden)
	}
	all := []uint64{s.address}
	if s.resolver {
		var err error
		if all, err = g.Implementations(s.address, s.size); err != nil {
			return err
		}
	}
	for _, address := range all {
		r, ok := g.frames.Range(address)
		if !ok || r.Start != address {
			return fmt.Errorf("%w: the function continues at %#x, which has no entry in the unwind table", ErrHidden, address)
		}
		g.queue = append(g.queue, &part{Range: r, shared: true})
	}
	return nil
}

// slotOf returns the slot that a PLT entry loads its target from.
func (t *Text) slotOf(entry uint64) (slot, bool) {
	if t.slots == nil {
		t.slots = t.readSlots()
	}
	for _, p := range t.segments {
		const size = 16
		if entry < p.Vaddr || entry+size > p.Vaddr+p.Filesz {
			continue
		}
		text := make([]byte, size)
		if _, err := p.ReadAt(text, int64(entry-p.Vaddr)); err != nil {
			return slot{}, false
		}
		at := slotX86(text, entry)
		if t.isARM64 {
			at = slotARM64(text, entry)
		}
		s, ok := t.slots[at]
		return s, ok
	}
	return slot{}, false
}

// readSlots reads the relocations of the GOT. Keys are addresses in the GOT.
func (t *Text) readSlots() map[uint64]slot {
	slots := map[uint64]slot{}
	var symbols []byte
	if s := t.file.Section(".dynsym"); s != nil {
		var err error
		if symbols, err = limit.Section(s, "the file", limit.Symbols*symbolSize); err != nil {
			return slots
		}
	}
	for _, s := range t.file.Sections {
		if s.Type != elf.SHT_RELA || !slices.Contains([]string{".rela.plt", ".rela.dyn", ".rela.iplt"}, s.Name) {
			continue
		}
		data, err := limit.Section(s, "the file", limit.Relocations)
		if err != nil {
			continue
		}
		for ; len(data) >= relaSize; data = data[relaSize:] {
			t.addSlot(slots, symbols, data)
		}
	}
	return slots
}

// Sizes of a relocation and of a symbol in bytes.
const (
	relaSize   = 24
	symbolSize = 24
)

func (t *Text) addSlot(slots map[uint64]slot, symbols, rela []byte) {
	order := t.file.ByteOrder
	at, info, addend := order.Uint64(rela), order.Uint64(rela[8:]), order.Uint64(rela[16:])
	switch kind := uint32(info); {
	case !t.isARM64 && kind == uint32(elf.R_X86_64_IRELATIVE), t.isARM64 && kind == uint32(elf.R_AARCH64_IRELATIVE):
		slots[at] = slot{address: addend, size: t.sizeOf(addend), resolver: true}
	case !t.isARM64 && (kind == uint32(elf.R_X86_64_JMP_SLOT) || kind == uint32(elf.R_X86_64_GLOB_DAT)),
		t.isARM64 && (kind == uint32(elf.R_AARCH64_JUMP_SLOT) || kind == uint32(elf.R_AARCH64_GLOB_DAT)):
		i := info >> 32
		if (i+1)*symbolSize > uint64(len(symbols)) {
			return
		}
		symbol := symbols[i*symbolSize:]
		if elf.SectionIndex(order.Uint16(symbol[6:])) == elf.SHN_UNDEF {
			return
		}
		const gnuIFunc = elf.SymType(10)
		value := order.Uint64(symbol[8:])
		slots[at] = slot{address: value, size: t.sizeOf(value), resolver: elf.ST_TYPE(symbol[4]) == gnuIFunc}
	}
}

// sizeOf returns the size of the function that starts at an address, or 0.
func (t *Text) sizeOf(address uint64) uint64 {
	r, ok := t.frames.Range(address)
	if !ok || r.Start != address {
		return 0
	}
	return r.End - r.Start
}
