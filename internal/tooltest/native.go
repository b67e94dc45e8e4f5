package tooltest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Native is a program that does not use the Go runtime, with functions to trace:
//
//	touch(n, -100, "known answer")  is called for n = Touches … 1 and returns n + 1
//	recurse(n)                      calls itself for n = Depth … 1; each call calls nap before it returns
//	nap()                           sleeps for Nap; it is called another Naps times
type Native struct {
	Touches, Depth, Naps uint64
	Nap                  time.Duration
}

// nativeSymbol is a function and its offset in the text.
type nativeSymbol struct {
	name  string
	start uint64
}

// nativeBase is the load address. The text starts one page after the headers.
const (
	nativeBase = 0x400000
	nativeText = 0x1000
)

// Write writes the program to a file and returns its path.
func (n *Native) Write(t testing.TB) string {
	t.Helper()
	return n.write(t, "native")
}

// WriteOdd writes the program to a file whose name is not UTF-8.
func (n *Native) WriteOdd(t testing.TB) string {
	t.Helper()
	return n.write(t, "odd\xff\x1b[31m")
}

func (n *Native) write(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, n.file(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func (n *Native) text() []byte {
	var b bytes.Buffer
	params := []uint64{n.Touches, n.Depth, n.Naps, uint64(n.Nap / time.Second), uint64(n.Nap % time.Second)}
	put(&b, params)
	return append(b.Bytes(), nativeCode()...)
}

func put(b *bytes.Buffer, v any) {
	_ = binary.Write(b, binary.LittleEndian, v) // cannot fail: v has a fixed size
}

// file returns an ELF file with one segment: headers, text, symbols and names.
func (n *Native) file() []byte {
	text := n.text()
	symbols, names := nativeTables()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	symtab := uint64(nativeText + len(text))
	strtab := symtab + uint64(len(symbols))
	var b bytes.Buffer
	put(&b, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Entry: nativeBase + nativeText + nativeSymbols()[0].start, Phoff: 64, Shoff: strtab + uint64(len(names)),
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 4, Shstrndx: 3,
	})
	put(&b, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: nativeText, Vaddr: nativeBase + nativeText,
		Filesz: uint64(len(text)), Memsz: uint64(len(text)), Align: 0x1000,
	})
	b.Write(make([]byte, nativeText-b.Len()))
	b.Write(text)
	b.Write(symbols)
	b.Write(names)
	put(&b, []elf.Section64{
		{},
		{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: nativeBase + nativeText, Off: nativeText, Size: uint64(len(text)), Addralign: 8},
		{Type: uint32(elf.SHT_SYMTAB), Off: symtab, Size: uint64(len(symbols)), Link: 3, Info: 1, Addralign: 8, Entsize: 24},
		{Type: uint32(elf.SHT_STRTAB), Off: strtab, Size: uint64(len(names)), Addralign: 1},
	})
	return b.Bytes()
}

// nativeTables returns the symbol table and its names.
func nativeTables() (symbols, names []byte) {
	var b bytes.Buffer
	put(&b, elf.Sym64{})
	names = []byte{0}
	all := nativeSymbols()
	for i, s := range all[:len(all)-1] {
		put(&b, elf.Sym64{
			Name: uint32(len(names)), Info: uint8(elf.STB_GLOBAL)<<4 | uint8(elf.STT_FUNC), Shndx: 1,
			Value: nativeBase + nativeText + s.start, Size: all[i+1].start - s.start,
		})
		names = append(append(names, s.name...), 0)
	}
	return b.Bytes(), names
}
