package stack

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
)

// goFunctions builds a table of the function table that every Go program
// carries for its own tracebacks, stripped or not; nil if there is none, or if
// it cannot be told for sure where in memory it applies.
func (m *image) goFunctions() *table {
	data, vaddr := m.pclntab()
	if data == nil {
		return nil
	}
	funcs := goFuncs(data)
	if len(funcs) == 0 {
		return nil
	}
	// Since 1.18 the table counts from the symbol runtime.text, which
	// stripping removes, and which is not where .text begins if a C linker
	// put its own code in front. debug/gosym takes a caller's word for it.
	for _, text := range m.goText(data, vaddr, funcs) {
		if m.isGoText(text, funcs) {
			return goTable(text, funcs)
		}
	}
	return nil
}

// goFuncs lists the functions, counted from 0 if the table is relative.
func goFuncs(data []byte) []gosym.Func {
	t, err := gosym.NewTable(nil, gosym.NewLineTable(data, 0))
	if err != nil {
		return nil
	}
	return t.Funcs
}

func goTable(text uint64, funcs []gosym.Func) *table {
	symbols := make([]symbol, 0, len(funcs))
	var names []byte
	for i := range funcs {
		f := &funcs[i]
		symbols = append(symbols, symbol{start: text + f.Entry, end: text + f.End, name: uint32(len(names))})
		names = append(append(names, f.Name...), 0)
	}
	return newTable(symbols, bytes.Clone(names))
}

// Headers of the table: 1.2, 1.16, 1.18 and 1.20.
const go12, go116, go118, go120 = 0xfb, 0xfa, 0xf0, 0xf1

// pclntab returns the table and its address. Position-independent programs
// before 1.26 have it in .data.rel.ro, among other things if the C linker was
// used.
func (m *image) pclntab() ([]byte, uint64) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"} {
		data := m.named(name)
		if at := findPclntab(data); at >= 0 {
			return data[at:], m.Section(name).Addr + uint64(at)
		}
	}
	return nil, 0
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
func (m *image) goText(data []byte, vaddr uint64, funcs []gosym.Func) []uint64 {
	if data[0] == go12 || data[0] == go116 {
		return []uint64{0}
	}
	const word, textStart = 8, 8 + 2*8
	var found []uint64
	if text := m.words(vaddr+textStart, word); len(text) == 1 && text[0] != 0 {
		found = append(found, text[0])
	}
	if text, ok := m.goModuleText(funcs); ok {
		found = append(found, text)
	}
	if s := m.Section(".text"); s != nil && m.isGoEntry(s.Addr, funcs) {
		found = append(found, s.Addr)
	}
	return found
}

// goModuleText looks in the module data for minpc and maxpc, two words that
// follow one another and are as far apart as the first and the last function.
func (m *image) goModuleText(funcs []gosym.Func) (uint64, bool) {
	s := m.Section(".go.module")
	if s == nil || s.Size > 64<<10 {
		return 0, false
	}
	first, last := funcs[0].Entry, funcs[len(funcs)-1].End
	words := m.words(s.Addr, s.Size)
	for i := 1; i < len(words); i++ {
		if words[i]-words[i-1] == last-first && words[i-1] >= first {
			return words[i-1] - first, true
		}
	}
	return 0, false
}

// isGoText reports whether all functions lie in code if they count from text,
// and whether the program then starts in a Go function that may do so.
func (m *image) isGoText(text uint64, funcs []gosym.Func) bool {
	first, last := text+funcs[0].Entry, text+funcs[len(funcs)-1].End
	inside := m.Entry >= first && m.Entry < last
	if inside && !m.isGoEntry(text, funcs) {
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
func (m *image) isGoEntry(text uint64, funcs []gosym.Func) bool {
	for i := range funcs {
		if text+funcs[i].Entry == m.Entry {
			return len(funcs[i].Name) > 5 && funcs[i].Name[:5] == "_rt0_"
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
		b, err := m.read("words", false, p.Off+vaddr-p.Vaddr, size)
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
		b, err := m.section(s)
		for ; err == nil && len(b) >= entry; b = b[entry:] {
			i := (m.ByteOrder.Uint64(b) - vaddr) / 8
			if i < uint64(len(words)) && uint32(m.ByteOrder.Uint64(b[8:])) == relative {
				words[i] = m.ByteOrder.Uint64(b[16:])
			}
		}
	}
}
