package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/corescope/corescope/internal/limit"
)

// goTable is the function table (pclntab) that every Go program contains for tracebacks, even if it
// is stripped. debug/gosym is not used because it copies a name per function, which takes terabytes
// for a malicious file, and because its caller must know the start of the text.
type goTable struct {
	data     []byte
	vaddr    uint64
	relative bool // addresses are relative to runtime.text: Go 1.18 and later
	funcs    []symbol
	names    []byte
}

// goFunctions returns a table of the functions of a Go program. It returns nil if the file is not a
// Go program, or if the address of runtime.text is uncertain.
func (m *image) goFunctions() (found *table, err error) {
	err = m.withGoTable(func(t *goTable, text uint64) { found = t.table(text) })
	return found, err
}

// withGoTable calls use with the function table of a Go program and the address of runtime.text,
// unless that is uncertain. The data of the table is valid until use returns.
func (m *image) withGoTable(use func(t *goTable, text uint64)) error {
	return m.withPclntab(func(data []byte, vaddr uint64) {
		t := parsePclntab(data, m.ByteOrder)
		if t == nil {
			return
		}
		t.data, t.vaddr = data, vaddr
		// runtime.text is a symbol, which stripping removes. It is not the start of .text if a C linker
		// put other code first.
		for _, text := range m.goText(t) {
			if m.isGoText(text, t) {
				use(t, text)
				return
			}
		}
	})
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

// First byte of the table, by the Go version that introduced the format.
const go12, go116, go118, go120 = 0xfb, 0xfa, 0xf0, 0xf1

// parsePclntab parses a function table, and returns nil if it is malformed. The header is followed
// by words with the number of functions and the offsets of the parts of the table: the names, and
// per function an address and the offset of a record. The record begins with the address and the
// offset of the name.
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

// readPclntab reads count pairs of address and record offset, with fields of size bytes. One more
// address follows: the end of the last function.
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

// withPclntab calls use with the function table and its address, if there is one. Position-independent
// programs built by Go before 1.26 have it in .data.rel.ro.gopclntab; if a C linker was used, it is a
// part of .data.rel.ro.
func (m *image) withPclntab(use func(data []byte, vaddr uint64)) error {
	var exceeded error
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"} {
		s, found := m.Section(name), false
		if s == nil {
			continue
		}
		err := limit.WithSection(s, m.data, m.path, limit.GoTable, func(data []byte) {
			if at := findPclntab(data); at >= 0 {
				found = true
				use(data[at:], s.Addr+uint64(at))
			}
		})
		if found {
			return err
		}
		if errors.Is(err, limit.ErrExceeded) {
			exceeded = err
		}
	}
	return exceeded
}

// findPclntab returns the offset of the table's header, or -1. The header consists of a magic
// number, two zero bytes, the instruction size and the pointer size. Only little-endian 64-bit
// programs are supported.
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

// goText lists candidates for the address of runtime.text, the most reliable first: the third word
// of the table's header (Go 1.18 to 1.25), the module data, and the start of .text, which is right
// if no C linker was used.
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

// goModuleText searches the module data for the adjacent words minpc and maxpc, whose difference is
// the distance from the first function to the end of the last.
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

// isGoText reports whether text can be the address of runtime.text: all functions lie in one
// executable section, and if the entry point of the program lies among them, it is the start of a
// Go entry function.
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

// isGoEntry reports whether the entry point of the program is a Go entry function (_rt0_*).
func (m *image) isGoEntry(text uint64, t *goTable) bool {
	for _, f := range t.funcs {
		if text+f.start == m.Entry {
			return bytes.HasPrefix(cstring(t.names, f.name), []byte("_rt0_"))
		}
	}
	return false
}

// words reads 64-bit words at an address. It applies the relocations that position-independent
// files have instead of values.
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

// relocate applies relocations of the form load address + addend, for the load address 0.
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
