package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/corescope/corescope/internal/limit"
)

// goTable is the table of functions that every Go program carries for its own
// tracebacks, stripped or not. debug/gosym reads it as well, but copies a name
// for each function, which a file made to that end turns into terabytes, and
// takes a caller's word for where the functions lie.
type goTable struct {
	vaddr    uint64
	relative bool // to runtime.text: 1.18 and later
	funcs    []symbol
	names    []byte
}

// goFunctions builds a table of the functions of a Go program; nil if it is
// none, or if it cannot be told for sure where in memory they lie.
func (m *image) goFunctions() (*table, error) {
	data, vaddr, err := m.pclntab()
	t := parsePclntab(data, m.ByteOrder)
	if t == nil {
		return nil, err
	}
	t.vaddr = vaddr
	// runtime.text is a symbol, which stripping removes, and not where .text
	// begins if a C linker put its own code in front.
	for _, text := range m.goText(t) {
		if m.isGoText(text, t) {
			return t.table(text), nil
		}
	}
	return nil, nil
}

func (t *goTable) first() uint64 { return t.funcs[0].start }

func (t *goTable) last() uint64 { return t.funcs[len(t.funcs)-1].end }

func (t *goTable) table(text uint64) *table {
	for i := range t.funcs {
		t.funcs[i].start += text
		t.funcs[i].end += text
	}
	return newTable(t.funcs, bytes.Clone(t.names))
}

// The first byte of the table, for 1.2, 1.16, 1.18 and 1.20.
const go12, go116, go118, go120 = 0xfb, 0xfa, 0xf0, 0xf1

// parsePclntab lists the functions of a table, nil if it is malformed. Behind
// the header lie words that say how many functions there are and where the
// parts begin: their names, and pairs of an address and the place of a record
// that begins with the address again and the place of the name.
func parsePclntab(data []byte, order binary.ByteOrder) *goTable {
	const header, wordSize = 8, 8
	if len(data) < header+8*wordSize {
		return nil
	}
	word := func(i int) uint64 { return order.Uint64(data[header+i*wordSize:]) }
	between := func(from, to uint64) []byte {
		to = min(to, uint64(len(data)))
		return data[min(from, to):to]
	}
	count, end := word(0), uint64(len(data))
	switch data[0] {
	case go118, go120:
		funcs := between(word(7), end)
		return readPclntab(count, funcs, funcs, between(word(3), word(4)), 4, order)
	case go116:
		funcs := between(word(6), end)
		return readPclntab(count, funcs, funcs, between(word(2), word(3)), 8, order)
	}
	return readPclntab(count, data[header+wordSize:], data, data, 8, order)
}

// readPclntab reads count pairs of fields of size bytes, one more address
// behind the last.
func readPclntab(count uint64, pairs, records, names []byte, size uint64, order binary.ByteOrder) *goTable {
	if count == 0 || count > limit.Symbols || count > uint64(len(pairs)) || (2*count+1)*size > uint64(len(pairs)) {
		return nil
	}
	field := func(i uint64) uint64 {
		if size == 4 {
			return uint64(order.Uint32(pairs[4*i:]))
		}
		return order.Uint64(pairs[8*i:])
	}
	t := &goTable{relative: size == 4, names: names, funcs: make([]symbol, count)}
	for i := range count {
		record := records[min(field(2*i+1), uint64(len(records))):]
		if uint64(len(record)) < size+4 {
			return nil
		}
		f := symbol{start: field(2 * i), end: field(2*i + 2), name: order.Uint32(record[size:])}
		if f.end < f.start || uint64(f.name) >= uint64(len(names)) {
			return nil
		}
		t.funcs[i] = f
	}
	return t
}

// pclntab returns the table and its address. Position-independent programs
// before 1.26 have it in .data.rel.ro, among other things if the C linker was
// used.
func (m *image) pclntab() (table []byte, vaddr uint64, exceeded error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"} {
		data, err := m.named(name, limit.GoTable)
		if errors.Is(err, limit.ErrExceeded) {
			exceeded = err
		}
		if at := findPclntab(data); at >= 0 {
			return data[at:], m.Section(name).Addr + uint64(at), nil
		}
	}
	return nil, 0, exceeded
}

// findPclntab looks for a header: magic, two zeros, the instruction size, the
// pointer size. Only little-endian 64-bit programs are read.
func findPclntab(data []byte) int {
	const header = 8
	for at := 0; ; at += header {
		i := bytes.Index(data[min(at, len(data)):], []byte{0xff, 0xff, 0xff, 0, 0})
		if i < 0 {
			return -1
		}
		at += i &^ (header - 1)
		if len(data)-at < header {
			return -1
		}
		h := data[at : at+header]
		magic := h[0] == go12 || h[0] == go116 || h[0] == go118 || h[0] == go120
		if magic && i&(header-1) == 1 && (h[6] == 1 || h[6] == 4) && h[7] == 8 {
			return at
		}
	}
}

// goText lists where runtime.text may be, the surest first. It is in the
// header of the table up to 1.25 (the third word) and in the module data
// since, and where .text begins if no C linker was used.
func (m *image) goText(t *goTable) []uint64 {
	if !t.relative {
		return []uint64{0}
	}
	const word, textStart = 8, 8 + 2*8
	var found []uint64
	if text := m.words(t.vaddr+textStart, word); len(text) == 1 && text[0] != 0 {
		found = append(found, text[0])
	}
	if text, ok := m.goModuleText(t); ok {
		found = append(found, text)
	}
	if s := m.Section(".text"); s != nil && m.isGoEntry(s.Addr, t) {
		found = append(found, s.Addr)
	}
	return found
}

// goModuleText looks in the module data for minpc and maxpc, two words that
// follow one another and are as far apart as the first and the last function.
func (m *image) goModuleText(t *goTable) (uint64, bool) {
	s := m.Section(".go.module")
	if s == nil || s.Size > 64<<10 {
		return 0, false
	}
	words := m.words(s.Addr, s.Size)
	for i := 1; i < len(words); i++ {
		if words[i]-words[i-1] == t.last()-t.first() && words[i-1] >= t.first() {
			return words[i-1] - t.first(), true
		}
	}
	return 0, false
}

// isGoText reports whether all functions lie in code if they count from text,
// and whether the program then starts in a Go function that may do so.
func (m *image) isGoText(text uint64, t *goTable) bool {
	first, last := text+t.first(), text+t.last()
	if m.Entry >= first && m.Entry < last && !m.isGoEntry(text, t) {
		return false
	}
	for _, s := range m.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && first >= s.Addr && last <= s.Addr+s.Size {
			return first < last
		}
	}
	return false
}

// isGoEntry reports whether the program starts at a Go start routine.
func (m *image) isGoEntry(text uint64, t *goTable) bool {
	for _, f := range t.funcs {
		if text+f.start == m.Entry {
			return bytes.HasPrefix(cstring(t.names, f.name), []byte("_rt0_"))
		}
	}
	return false
}

// words reads 64-bit words at an address, with the relocations applied that
// position-independent files have instead of the values.
func (m *image) words(vaddr, size uint64) []uint64 {
	words := make([]uint64, size/8)
	for _, p := range m.Progs {
		if p.Type != elf.PT_LOAD || vaddr-p.Vaddr >= p.Filesz || size > p.Filesz-(vaddr-p.Vaddr) {
			continue
		}
		b, err := m.read("words", p.Off+vaddr-p.Vaddr, size, limit.SmallSection)
		if err != nil {
			return nil
		}
		for i := range words {
			words[i] = m.ByteOrder.Uint64(b[8*i:])
		}
		m.relocate(words, vaddr)
		return words
	}
	return nil
}

// relocate applies the relocations whose value is the load address plus an
// addend, for a load address of 0.
func (m *image) relocate(words []uint64, vaddr uint64) {
	const entry = 24
	relative := map[elf.Machine]uint32{
		elf.EM_X86_64:  uint32(elf.R_X86_64_RELATIVE),
		elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE),
	}[m.Machine]
	for _, s := range m.Sections {
		if s.Type != elf.SHT_RELA {
			continue
		}
		b, err := limit.Section(s, m.path, limit.Relocations)
		for ; err == nil && len(b) >= entry; b = b[entry:] {
			i := (m.ByteOrder.Uint64(b) - vaddr) / 8
			if i < uint64(len(words)) && uint32(m.ByteOrder.Uint64(b[8:])) == relative {
				words[i] = m.ByteOrder.Uint64(b[16:])
			}
		}
	}
}
