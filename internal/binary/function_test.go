package binary

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"testing"
)

// TestVersions lists a function with two versions, from both symbol tables.
func TestVersions(t *testing.T) {
	file := &elf.File{Progs: []*elf.Prog{{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Off: 0x1000, Vaddr: 0x2000, Filesz: 0x1000}}}}
	symbol := func(name, version string, index elf.VersionIndex, value uint64, kind elf.SymType) elf.Symbol {
		return elf.Symbol{Name: name, Version: version, HasVersion: version != "", VersionIndex: index, Info: elf.ST_INFO(elf.STB_GLOBAL, kind), Section: 1, Value: value, Size: 4}
	}
	const hidden = 0x8000
	exported := []elf.Symbol{
		symbol("copy", "V1", 2|hidden, 0x2010, elf.STT_FUNC), symbol("copy", "V2", 3, 0x2020, elf.STT_FUNC),
		symbol("pick", "V1", 2, 0x2030, elf.STT_GNU_IFUNC), symbol("plain", "", 1, 0x2040, elf.STT_FUNC),
	}
	all := []elf.Symbol{
		symbol("copy@V1", "", 0, 0x2010, elf.STT_FUNC), symbol("copy@@V2", "", 0, 0x2020, elf.STT_FUNC),
		symbol("pick@@V1", "", 0, 0x2030, elf.STT_GNU_IFUNC), symbol("static", "", 0, 0x2050, elf.STT_FUNC),
	}
	got := ""
	for _, kind := range []elf.SymType{elf.STT_FUNC, elf.STT_GNU_IFUNC} {
		found, err := functions(file, tableOf(exported), tableOf(all), kind, "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, fn := range found {
			got += fmt.Sprintf("%s at %#x, ", fn.Label(), fn.Offset)
		}
	}
	want := "copy@V1 at 0x1010, copy at 0x1020, plain at 0x1040, static at 0x1050, pick at 0x1030, "
	if got != want {
		t.Errorf("functions: %s want %s", got, want)
	}
}

// tableOf encodes a symbol table.
func tableOf(symbols []elf.Symbol) *Symbols {
	t := &Symbols{
		data: make([]byte, elf.Sym64Size), versions: make([]byte, 2), names: "\x00", order: binary.LittleEndian,
		versionNames: map[uint16]uint32{},
	}
	text := func(text string) uint32 {
		t.names += text + "\x00"
		return uint32(len(t.names) - len(text) - 1)
	}
	for _, s := range symbols {
		var b bytes.Buffer
		binary.Write(&b, t.order, elf.Sym64{Name: text(s.Name), Info: s.Info, Shndx: uint16(s.Section), Value: s.Value, Size: s.Size})
		t.data = append(t.data, b.Bytes()...)
		t.versions = binary.LittleEndian.AppendUint16(t.versions, uint16(s.VersionIndex))
		if s.Version != "" {
			t.versionNames[s.VersionIndex.Index()] = text(s.Version)
		}
	}
	return t
}
