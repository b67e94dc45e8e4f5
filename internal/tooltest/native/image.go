package native

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// Layout of the file: headers, a page of code, a page of data, and the sections that describe them.
// Virtual addresses are file offsets plus moved.
const (
	partSize = 64 << 10 // the largest page size
	moved    = 1 << 20
	codeSize = 128

	headSize   = 64 // of the ELF header
	progSize   = 56
	sectSize   = 64
	symbolSize = 24

	textOffset = partSize
	dataOffset = 2 * partSize
	restOffset = 3 * partSize
)

// base is the address of the section .stapsdt.base in the notes, baseNow its actual address. They
// differ as in a prelinked library.
const (
	baseNow = moved + restOffset
	base    = baseNow - 0x1000
)

// image is the content of a library.
type image struct {
	functions []string
	probes    []Probe
	choices   []Choice
}

// slotOffset is the offset of the slots of choices in the page of data.
const slotOffset = 4096

type section struct {
	name  string
	kind  elf.SectionType
	addr  uint64
	data  []byte
	link  uint32
	size  uint64 // size of an entry
	flags elf.SectionFlag
}

// bytes returns the file.
func (m *image) bytes() []byte {
	names, symbols := m.symbols()
	sections := []section{
		{},
		{name: ".dynstr", kind: elf.SHT_STRTAB, data: names},
		{name: ".dynsym", kind: elf.SHT_DYNSYM, data: symbols, link: 1, size: symbolSize},
		{name: ".stapsdt.base", kind: elf.SHT_PROGBITS, addr: baseNow},
		{name: ".note.stapsdt", kind: elf.SHT_NOTE, data: m.notes()},
		{name: ".rela.dyn", kind: elf.SHT_RELA, data: m.relocations(), link: 2, size: 24, flags: elf.SHF_ALLOC},
		{name: ".eh_frame", kind: elf.SHT_PROGBITS, data: m.frames()},
		{name: ".shstrtab", kind: elf.SHT_STRTAB},
	}
	b := make([]byte, restOffset)
	for i := range m.functions {
		copy(b[textOffset+codeSize*i:], code())
	}
	return m.finish(b, sections)
}

// symbols returns the dynamic symbol table, which starts with an empty symbol, and its names.
func (m *image) symbols() (names, symbols []byte) {
	names, symbols = []byte{0}, make([]byte, symbolSize)
	for i, name := range m.functions {
		symbols = write(symbols, elf.Sym64{
			Name: uint32(len(names)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 3,
			Value: m.addr(i), Size: codeSize,
		})
		names = append(append(names, name...), 0)
	}
	for _, c := range m.choices {
		symbols = write(symbols, elf.Sym64{
			Name: uint32(len(names)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_GNU_IFUNC), Shndx: 3,
			Value: m.function(c.Resolver), Size: codeSize,
		})
		names = append(append(names, c.Name...), 0)
	}
	return names, symbols
}

// frames returns .eh_frame: a CIE, and an FDE for each function, with absolute addresses.
func (m *image) frames() []byte {
	const dataAlign = 0x78 // -8
	cie := append([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, dataAlign, returnRegister, 1, 0}, atEntry()...)
	b := append(write(nil, uint32(len(cie))), cie...)
	for i := range m.functions {
		fde := write(nil, uint32(len(b)+4)) // distance to the CIE
		fde = write(fde, []uint64{m.addr(i), uint64(len(code()))})
		fde = append(append(fde, 0), withinCode()...)
		b = append(write(b, uint32(len(fde))), fde...)
	}
	return b
}

// relocations returns IRELATIVE relocations for the slots of the choices.
func (m *image) relocations() (b []byte) {
	for i, c := range m.choices {
		b = write(b, elf.Rela64{Off: uint64(moved + dataOffset + slotOffset + 8*i), Info: irelative, Addend: int64(m.function(c.Resolver))})
	}
	return b
}

// function returns the address of a function by its name.
func (m *image) function(name string) uint64 {
	return m.addr(slices.Index(m.functions, name))
}

// addr returns the address of the function with index i.
func (m *image) addr(i int) uint64 { return uint64(moved + textOffset + codeSize*i) }

func (m *image) notes() []byte {
	var all []byte
	for i, p := range m.probes {
		var loc, semaphore uint64
		for j, name := range m.functions {
			if name == p.Function {
				loc = m.addr(j) - baseNow + base
			}
		}
		if p.Semaphore {
			semaphore = uint64(moved+dataOffset+8*i) - baseNow + base
		}
		desc := write(nil, []uint64{loc, base, semaphore})
		desc = append(desc, p.Provider+"\x00"+p.Name+"\x00"+p.Args+"\x00"...)
		all = write(all, []uint32{8, uint32(len(desc)), 3})
		all = append(append(all, "stapsdt\x00"...), desc...)
		all = append(all, make([]byte, -len(all)&3)...)
	}
	return all
}

// finish appends the sections and their headers, and writes the ELF and program headers.
func (m *image) finish(b []byte, sections []section) []byte {
	var names []byte
	var nameOffsets []uint32
	for _, s := range sections {
		nameOffsets = append(nameOffsets, uint32(len(names)))
		names = append(append(names, s.name...), 0)
	}
	sections[len(sections)-1].data = names
	var headers []byte
	for i, s := range sections {
		headers = write(headers, elf.Section64{
			Name: nameOffsets[i], Type: uint32(s.kind), Addr: s.addr, Off: uint64(len(b)), Size: uint64(len(s.data)),
			Link: s.link, Addralign: 1, Entsize: s.size, Flags: uint64(s.flags),
		})
		b = append(b, s.data...)
	}
	copy(b, m.head(uint64(len(b)), uint16(len(sections))))
	return append(b, headers...)
}

func (m *image) head(sectionsAt uint64, sections uint16) []byte {
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: headSize, Shoff: sectionsAt,
		Ehsize: headSize, Phentsize: progSize, Phnum: 2, Shentsize: sectSize, Shnum: sections, Shstrndx: sections - 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	b := write(nil, h)
	for offset, flags := range map[uint64]elf.ProgFlag{textOffset: elf.PF_R | elf.PF_X, dataOffset: elf.PF_R | elf.PF_W} {
		b = write(b, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: offset, Vaddr: moved + offset,
			Filesz: partSize, Memsz: partSize, Align: partSize,
		})
	}
	return b
}

func write(b []byte, v any) []byte {
	var out bytes.Buffer
	// Cannot fail: all of these types have a fixed size.
	_ = binary.Write(&out, binary.LittleEndian, v)
	return append(b, out.Bytes()...)
}
