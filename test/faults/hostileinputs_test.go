package faults

import (
	"bufio"
	"bytes"
	"debug/elf"
	encoding "encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
)

// createPerfMap creates the perf map of the load.
func createPerfMap(t *testing.T, l *load) *os.File {
	t.Helper()
	f, err := os.Create(fmt.Sprintf("/tmp/perf-%d.map", l.pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	return f
}

// needDiskSpace skips the test if the file system of f has fewer free bytes.
func needDiskSpace(t *testing.T, f *os.File, bytes int64) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		t.Fatal(err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < bytes {
		t.Skipf("%d MB are free in the file system of %s: the test needs %d MB", free>>20, f.Name(), bytes>>20)
	}
}

func longPerfMap(t *testing.T, l *load) {
	const lines = 20_000_000
	f := createPerfMap(t, l)
	needDiskSpace(t, f, lines*25)
	w := bufio.NewWriterSize(f, 1<<20)
	line := []byte{}
	for i := range uint64(lines) {
		line = strconv.AppendUint(line[:0], 0x10000000+16*i, 16)
		line = strconv.AppendUint(append(line, " 10 f"...), i, 10)
		if _, err := w.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

func sparsePerfMap(t *testing.T, l *load) {
	if f := createPerfMap(t, l); f.Truncate(1<<40) != nil {
		t.Skipf("the file system of %s does not support files of 1 TiB", f.Name())
	}
}

// longJITDump creates a jitdump with more functions than the tool keeps, after a record that claims
// 4 GiB of code.
func longJITDump(t *testing.T, l *load) {
	f, err := os.Create(filepath.Join(t.TempDir(), fmt.Sprintf("jit-%d.dump", l.pid)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const functions, claimed = limit.JITFunctions + 1000, 1<<32 - 1
	needDiskSpace(t, f, functions*64)
	head := make([]byte, 40)
	encoding.LittleEndian.PutUint32(head, 0x4a695444)
	encoding.LittleEndian.PutUint32(head[4:], 1)
	encoding.LittleEndian.PutUint32(head[8:], 40)
	encoding.LittleEndian.PutUint32(head[20:], uint32(l.pid))
	at := int64(len(head))
	record := func(i, total, code uint64) []byte {
		b := make([]byte, 16+40+3)
		encoding.LittleEndian.PutUint32(b[4:], uint32(total))
		encoding.LittleEndian.PutUint64(b[16+8:], 0x10000000+16*i)
		encoding.LittleEndian.PutUint64(b[16+16:], 0x10000000+16*i)
		encoding.LittleEndian.PutUint64(b[16+24:], code)
		encoding.LittleEndian.PutUint64(b[16+32:], i)
		copy(b[16+40:], "f\x00\xc3")
		return b
	}
	first := record(0, claimed, claimed-16-40-2)
	if _, err := f.WriteAt(append(head, first...), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(at+claimed, 0); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range uint64(functions) {
		w.Write(record(i+1, 16+40+3, 1))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	// The load maps the jitdump executable, as JIT compilers do to announce it to perf.
	before := l.place
	l.place = f.Name()
	l.do(t, "keep code", 1)
	l.place = before
}

// manyMappings makes the load map the pages of a file nearly as often as the kernel allows.
func manyMappings(t *testing.T, l *load) {
	f, err := os.Create(filepath.Join(t.TempDir(), "code"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	const most = "/proc/sys/vm/max_map_count"
	n := min(number(t, most, "")-500, 65_000)
	if n < limit.Mappings {
		t.Skipf("%s allows only %d mappings", most, n)
	}
	before := l.place
	l.place = f.Name()
	l.do(t, "keep code", n)
	l.place = before
}

// keepsCode maps the first page of a file executable n times.
func keepsCode(n int, place string) (int, error) {
	f, err := os.Open(place)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for i := range n {
		if _, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
			return i, err
		}
	}
	return n, nil
}

// elfFile creates a sparse shared library with the code, followed by these sections.
func elfFile(t *testing.T, name string, size int64, names string, sections []elf.Section64, contents string) string {
	t.Helper()
	const start = codeOffset * 2
	path := filepath.Join(t.TempDir(), name)
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	at := func(name string) uint32 { return uint32(strings.Index(names, "\x00"+name+"\x00")) + 1 }
	sections = append([]elf.Section64{{}, {
		Name: at(".text"), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
		Addr: codeOffset, Off: codeOffset, Size: codeOffset,
	}}, sections...)
	sections = append(sections, elf.Section64{Name: at(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: start, Size: uint64(len(names))})
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		Shoff: 128, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	var head bytes.Buffer
	encoding.Write(&head, encoding.LittleEndian, &h)
	encoding.Write(&head, encoding.LittleEndian, &elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: codeOffset, Vaddr: codeOffset, Filesz: codeOffset, Memsz: codeOffset,
	})
	head.Write(make([]byte, 8))
	encoding.Write(&head, encoding.LittleEndian, sections)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, b := range map[int64][]byte{0: head.Bytes(), codeOffset: spinCode(), start: []byte(names), start + 0x1000: []byte(contents)} {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Skipf("the file system of %s does not support files of %d bytes: %v", path, size, err)
	}
	return path
}

// largeELF creates a file whose sections contain 16 GiB of zeros each.
func largeELF(t *testing.T) string {
	const size, start = 1 << 34, codeOffset * 4
	names := "\x00.text\x00.symtab\x00.strtab\x00.dynsym\x00.eh_frame\x00.gopclntab\x00.note\x00.gnu_debugdata\x00.rela.dyn\x00.shstrtab\x00"
	var sections []elf.Section64
	for name, kind := range map[string]elf.SectionType{
		".eh_frame": elf.SHT_PROGBITS, ".gopclntab": elf.SHT_PROGBITS, ".note": elf.SHT_NOTE, ".gnu_debugdata": elf.SHT_PROGBITS,
		".rela.dyn": elf.SHT_RELA,
	} {
		sections = append(sections, elf.Section64{
			Name: uint32(strings.Index(names, "\x00"+name+"\x00")) + 1, Type: uint32(kind), Flags: uint64(elf.SHF_ALLOC),
			Off: start, Size: size, Addr: codeOffset * 3,
		})
	}
	link := uint32(len(sections) + 2) // the strings follow the two sections
	text := elf.Section64{Name: uint32(indexOf(names, ".strtab")), Type: uint32(elf.SHT_STRTAB), Off: start, Size: 1 << 20}
	symbols := elf.Section64{Name: uint32(indexOf(names, ".symtab")), Type: uint32(elf.SHT_SYMTAB), Off: start, Size: size, Link: link, Entsize: 24}
	dynamic := elf.Section64{Name: uint32(indexOf(names, ".dynsym")), Type: uint32(elf.SHT_DYNSYM), Off: start, Size: size, Link: link, Entsize: 24}
	return elfFile(t, "large.so", start+size, names, append(sections, text, symbols, dynamic), "")
}

func indexOf(names, name string) int { return strings.Index(names, name) }

// ruledELF creates a file whose .eh_frame has 150,000 rules.
func ruledELF(t *testing.T) string {
	const start, functions, rules = codeOffset*2 + 0x1000, 150, 1000
	names := "\x00.text\x00.eh_frame\x00.shstrtab\x00"
	sp, ra := byte(7), byte(16)
	if runtime.GOARCH == "arm64" {
		sp, ra = 31, 30
	}
	frame := []byte{ // CIE, ending with the initial instructions
		20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, ra, 1, 0, 0x0c, sp, 8, 0x80 | ra, 1, 0, 0,
	}
	for i := range functions {
		b := make([]byte, 25, 25+3*rules) // length, CIE pointer, address, size, no augmentation data
		for range rules / 2 {
			// advance_loc 1; def_cfa_offset: the frame size changes after each byte
			b = append(b, 0x41, 0x0e, 16, 0x41, 0x0e, 24)
		}
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		encoding.LittleEndian.PutUint32(b, uint32(len(b)-4))
		encoding.LittleEndian.PutUint32(b[4:], uint32(len(frame)+4))
		encoding.LittleEndian.PutUint64(b[8:], uint64(codeOffset+0x1000+i*2*rules))
		encoding.LittleEndian.PutUint64(b[16:], 2*rules)
		frame = append(frame, b...)
	}
	return elfFile(t, "ruled.so", start+1<<20, names, []elf.Section64{{
		Name: uint32(indexOf(names, ".eh_frame")), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC),
		Addr: start, Off: start, Size: uint64(len(frame)),
	}}, string(frame))
}

// compressedELF creates a file with a symbol for the code, and compressed debugging information
// that claims a decompressed size of 16 GiB.
func compressedELF(t *testing.T) string {
	const start, size = codeOffset*2 + 0x1000, 1 << 34
	names := "\x00.text\x00.symtab\x00.strtab\x00.zdebug_info\x00.shstrtab\x00"
	var b bytes.Buffer
	b.WriteString("ZLIB")
	encoding.Write(&b, encoding.BigEndian, uint64(size))
	debug := b.Len()
	b.WriteString("\x00spin\x00")
	text := b.Len() - debug
	for b.Len()%8 != 0 {
		b.WriteByte(0)
	}
	table := b.Len()
	encoding.Write(&b, encoding.LittleEndian, []elf.Sym64{{}, {
		Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: codeOffset, Size: 64,
	}})
	return elfFile(t, "compressed.so", codeOffset*4, names, []elf.Section64{
		{Name: uint32(indexOf(names, ".zdebug_info")), Type: uint32(elf.SHT_PROGBITS), Off: start, Size: uint64(debug)},
		{Name: uint32(indexOf(names, ".strtab")), Type: uint32(elf.SHT_STRTAB), Off: start + uint64(debug), Size: uint64(text)},
		{Name: uint32(indexOf(names, ".symtab")), Type: uint32(elf.SHT_SYMTAB), Off: start + uint64(table), Size: 48, Link: 3, Entsize: 24},
	}, b.String())
}
