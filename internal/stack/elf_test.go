package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loadSymbols reads the symbols of a file.
func loadSymbols(t testing.TB, file string) *symbols {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSymbols(bytes.NewReader(data), int64(len(data)), "a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at returns the name of the function at an ELF virtual address.
func (s *symbols) at(vaddr uint64, where place) string {
	name, _, _ := s.find(vaddr, where)
	return name
}

func openTestImage(t testing.TB, file string) *image {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := openImage(f, info.Size(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// assembly has functions with and without a size, padding between them, labels, data in the text
// section, and sections of its own.
const assembly = `
	.text
	.globl	sized, unsized, typeless, inner
	.type	sized, @function
sized:	.skip	16, 0x90
inner:	.skip	16, 0x90
	.size	sized, .-sized
	.skip	16, 0xcc
	.type	unsized, @function
unsized: .skip	16, 0x90
local:	.skip	16, 0x90
typeless: .skip	16, 0x90
	.type	table, @object
table:	.skip	16, 0x00
	.size	table, .-table
	.section .own, "ax", @progbits
	.globl	alone
	.type	alone, @function
alone:	.skip	16, 0x90
	.section .after, "ax", @progbits
	.skip	32, 0x90
begin:	.skip	16, 0x90
.note:	.skip	16, 0x90
`

func assemble(t *testing.T, flags ...string) string {
	t.Helper()
	need(t, "gcc")
	dir := t.TempDir()
	file, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	if err := os.WriteFile(file, []byte(assembly), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-shared", "-nostdlib", "-Wl,--build-id", "-o", out, file}
	run(t, "gcc", append(args, flags...)...)
	return out
}

func TestELFSizes(t *testing.T) {
	file := assemble(t)
	text, own := openTestImage(t, file).Section(".text").Addr, openTestImage(t, file).Section(".own").Addr
	after := openTestImage(t, file).Section(".after").Addr
	s := loadSymbols(t, file)
	tests := []struct {
		addr uint64
		want string
	}{
		{text, "sized"},
		{text + 16, "sized"}, // not the label in it
		{text + 31, "sized"},
		{text + 32, ""}, // not the padding
		{text + 48, "unsized"},
		{text + 64, "unsized"}, // local labels are not functions
		{text + 79, "unsized"},
		{text + 80, "typeless"},
		{own, "alone"},
		{own + 15, "alone"},
		{own + 16, ""}, // not the next section
		{after, ""},
		{after + 32, "begin"}, // a local symbol without a type, outside functions
		{after + 63, "begin"},
		{own + 40, ""},
		{text - 1, ""},
	}
	for _, test := range tests {
		if got := s.at(test.addr, place{}); got != test.want {
			t.Errorf("%#x: got %q, want %q", test.addr, got, test.want)
		}
	}

	// .dynsym lacks local symbols, so a symbol without a size has no known end.
	s = loadSymbols(t, stripped(t, file))
	for addr, want := range map[uint64]string{text + 31: "sized", text + 48: "", text + 80: "", own: ""} {
		if got := s.at(addr, place{}); got != want {
			t.Errorf("stripped, %#x: got %q, want %q", addr, got, want)
		}
	}
}

// TestELFAllFunctions compares with debug/elf for a C program and its libraries: the first and the
// last byte of each function symbol must have that symbol, an alias, or a symbol within it.
func TestELFAllFunctions(t *testing.T) {
	for _, file := range mappedFiles(t) {
		s := loadSymbols(t, file)
		for _, fn := range elfFunctions(t, file) {
			for _, addr := range []uint64{fn.Value, fn.Value + fn.Size - 1} {
				i := s.tables[0].lookup(addr)
				if i < 0 {
					t.Errorf("%s: %s has no name at %#x", file, fn.Name, addr)
					continue
				}
				if start := s.tables[0].starts[i]; start < fn.Value {
					t.Errorf("%s: %s at %#x is %s", file, fn.Name, addr, s.tables[0].name(i))
				}
			}
		}
	}
}

// mappedFiles lists the files that a C program maps executable.
func mappedFiles(t *testing.T) []string {
	ps := newProcesses(t)
	c := start(t, compile(t, program, "-lm"))
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, m := range ps.pids[c.pid()].snapshot.maps {
		if m.isFile() {
			files = append(files, m.path)
		}
	}
	return files
}

func elfFunctions(t *testing.T, file string) (functions []elf.Symbol) {
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		symbols, err = f.DynamicSymbols()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF && s.Size > 0 {
			functions = append(functions, s)
		}
	}
	return functions
}

func TestBuildIDNote(t *testing.T) {
	note := func(name string, kind uint32, desc string) (b []byte) {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		b = binary.LittleEndian.AppendUint32(b, kind)
		for _, s := range []string{name, desc} {
			b = append(b, s...)
			b = append(b, make([]byte, -len(s)&3)...)
		}
		return b
	}
	id := note("GNU\x00", 3, "\x01\x02\xff")
	huge := note("GNU\x00", 3, "")
	binary.LittleEndian.PutUint32(huge[4:], 0xffffffff)
	tests := []struct {
		name string
		note []byte
		want string
	}{
		{"alone", id, "0102ff"},
		{"after another", append(note("stapsdt\x00", 3, "odd"), id...), "0102ff"},
		{"other type", note("GNU\x00", 1, "\x01"), ""},
		{"Go build ID", note("Go\x00\x00", 4, "abc"), ""},
		{"truncated", id[:len(id)-3], ""},
		{"huge", huge, ""},
		{"empty", nil, ""},
	}
	for _, test := range tests {
		if got := buildIDNote(test.note, binary.LittleEndian); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// debugTree is a directory with a stripped program and its debug file. It is used as a root.
type debugTree struct {
	root     *root
	path     string // of the program, relative to the root
	symbols  *symbols
	function uint64
}

func makeDebugTree(t *testing.T, at func(d debugTree, dir, id string) (file string)) debugTree {
	t.Helper()
	need(t, "objcopy", "strip", "nm")
	full := compile(t, program)
	dir := t.TempDir()
	d := debugTree{path: "/opt/prog", function: symbolAddress(t, full, "static_one")}
	file := filepath.Join(dir, at(d, dir, openTestImage(t, full).buildID()))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "objcopy", "--only-keep-debug", full, file)
	bare := stripped(t, full)
	run(t, "objcopy", "--add-gnu-debuglink="+file, bare)
	root, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.dir.Close() })
	d.root, d.symbols = root, loadSymbols(t, bare)
	return d
}

func TestDebugFile(t *testing.T) {
	fixed := func(file string) func(debugTree, string, string) string {
		return func(debugTree, string, string) string { return file }
	}
	tests := []struct {
		name string
		at   func(d debugTree, dir, id string) string
		want string
	}{
		{"build-id", func(_ debugTree, _, id string) string {
			return "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
		}, "static_one"},
		{"same directory", fixed("/opt/prog.debug"), "static_one"},
		{".debug", fixed("/opt/.debug/prog.debug"), "static_one"},
		{"/usr/lib/debug", fixed("/usr/lib/debug/opt/prog.debug"), "static_one"},
		{"elsewhere", fixed("/usr/lib/prog.debug"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := makeDebugTree(t, test.at)
			where := place{path: d.path, roots: []*root{d.root}}
			if got := d.symbols.at(d.function+1, where); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			tables := len(d.symbols.tables)
			if d.symbols.at(1, where); len(d.symbols.tables) != tables {
				t.Error("the debug file was read twice")
			}
		})
	}
}

// TestDebugFileMismatch uses the debug file of another program.
func TestDebugFileMismatch(t *testing.T) {
	d := makeDebugTree(t, func(debugTree, string, string) string { return "/opt/prog.debug" })
	other := compile(t, program+"int one_more;")
	where := place{path: d.path, roots: []*root{d.root}}
	file := filepath.Join(d.root.dir.Name(), "/opt/prog.debug")
	run(t, "objcopy", "--only-keep-debug", other, file)
	if got := d.symbols.at(d.function, where); got != "" {
		t.Errorf("used a debug file with another build-id: %q", got)
	}

	// Without a build-id, the checksum is compared.
	run(t, "objcopy", "--only-keep-debug", "--remove-section=.note.gnu.build-id", other, file)
	d.symbols.debugFileSearched = false
	if got := d.symbols.at(d.function, where); got != "" {
		t.Errorf("used a debug file with another checksum: %q", got)
	}
}

func TestDebugFileByChecksum(t *testing.T) {
	d := makeDebugTree(t, func(debugTree, string, string) string { return "/opt/prog.debug" })
	d.symbols.buildID = ""
	where := place{path: d.path, roots: []*root{d.root}}
	if got := d.symbols.at(d.function, where); got != "static_one" {
		t.Errorf("got %q", got)
	}
}

// TestDebugFileLink checks that an absolute link in the directory .build-id is resolved below the
// root.
func TestDebugFileLink(t *testing.T) {
	d := makeDebugTree(t, func(debugTree, string, string) string { return "/real/prog.debug" })
	id := d.symbols.buildID
	dir := filepath.Join(d.root.dir.Name(), "usr/lib/debug/.build-id", id[:2])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/real/prog.debug", filepath.Join(dir, id[2:]+".debug")); err != nil {
		t.Fatal(err)
	}
	if got := d.symbols.at(d.function, place{path: d.path, roots: []*root{d.root}}); got != "static_one" {
		t.Errorf("got %q", got)
	}
}

func TestMiniDebug(t *testing.T) {
	need(t, "objcopy", "strip", "nm", "xz")
	for _, options := range [][]string{{"-6"}, {"-0", "--check=crc32"}, {"-9", "--check=sha256"}, {"--block-size=512"}, {"--check=none"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			full := compile(t, program)
			inner := filepath.Join(t.TempDir(), "mini")
			run(t, "objcopy", "-S", "--remove-section=.comment", "--keep-symbol=static_one", full, inner)
			run(t, "xz", append(options, inner)...)
			bare := stripped(t, full)
			run(t, "objcopy", "--add-section", ".gnu_debugdata="+inner+".xz", bare)
			s := loadSymbols(t, bare)
			if got := s.at(symbolAddress(t, full, "static_one")+1, place{}); got != "static_one" {
				t.Errorf("got %q", got)
			}
			if got := s.at(symbolAddress(t, full, "global_two")+1, place{}); got != "" {
				t.Errorf("a function that .gnu_debugdata lacks: got %q", got)
			}
		})
	}
}

func TestUnxz(t *testing.T) {
	need(t, "xz")
	want := bytes.Repeat([]byte("some text, and some more. "), 5000)
	cmd := exec.Command("xz", "-c", "--block-size=10000")
	cmd.Stdin = bytes.NewReader(want)
	packed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := unxz(packed)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	index := 4 * (1 + int(binary.LittleEndian.Uint32(packed[len(packed)-8:])))
	for i := 0; i < len(packed)-12-index; i += 7 {
		if _, err := unxz(packed[:i]); err == nil {
			t.Errorf("no error for the first %d bytes", i)
		}
	}
	for i := 30; i < 60; i++ { // in the first block
		broken := bytes.Clone(packed)
		broken[i] ^= 0x40
		if got, err := unxz(broken); err == nil && !bytes.Equal(got, want) {
			t.Errorf("no error with byte %d changed", i)
		}
	}
	for _, check := range []string{"--check=crc32", "--check=crc64"} {
		cmd := exec.Command("xz", "-c", check)
		cmd.Stdin = strings.NewReader("0123456789abcdefghijklmnopqrstuvwxyz") // too short to compress
		stored, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unxz(stored); err != nil {
			t.Errorf("%s: %v", check, err)
		}
		if _, err := unxz(bytes.Replace(stored, []byte("xyz"), []byte("xyy"), 1)); err == nil {
			t.Errorf("%s: no error with a wrong checksum", check)
		}
	}
	huge := bytes.Clone(packed)
	if i := bytes.Index(huge, []byte{0x21, 0x01}); i < 0 {
		t.Fatal("no LZMA2 filter in the block header")
	} else {
		huge[i+2] = 40 // a dictionary of 4 GiB
	}
	if _, err := unxz(huge); err == nil {
		t.Error("no error for a dictionary of 4 GiB")
	}
}

func TestSymbol32(t *testing.T) {
	m := &image{File: &elf.File{FileHeader: elf.FileHeader{Class: elf.ELFCLASS32, ByteOrder: binary.LittleEndian}}}
	m.Sections = []*elf.Section{
		{},
		{SectionHeader: elf.SectionHeader{Flags: elf.SHF_EXECINSTR, Addr: 0x1000, Size: 0x100}},
		{SectionHeader: elf.SectionHeader{Flags: elf.SHF_WRITE, Addr: 0x3000, Size: 0x100}},
	}
	var b bytes.Buffer
	for _, s := range []elf.Sym32{
		{Name: 1, Value: 0x1010, Size: 8, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1},
		{Name: 3, Value: 0x1020, Size: 0x1000, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: 1},
		{Name: 5, Value: 0x1030, Size: 8, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_OBJECT), Shndx: 1},
		{Name: 5, Value: 0x2000, Size: 8, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: 1},
		{Name: 5, Value: 0x3000, Size: 8, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: 2},
		{Name: 5, Value: 0x1040, Size: 8, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: 0},
	} {
		binary.Write(&b, binary.LittleEndian, s)
	}
	names := []byte("\x00a\x00b\x00c\x00")
	section := &elf.Section{SectionHeader: elf.SectionHeader{FileSize: uint64(b.Len())}, ReaderAt: bytes.NewReader(b.Bytes())}
	symbols, err := m.decode(section, names, true)
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(symbols, names)
	for addr, want := range map[uint64]string{0x1010: "a", 0x1018: "", 0x1020: "b", 0x1035: "b", 0x10ff: "b", 0x1100: "", 0x2000: "", 0x3000: ""} {
		if got := table.at(addr); got != want {
			t.Errorf("%#x: got %q, want %q", addr, got, want)
		}
	}
}

func TestSegments(t *testing.T) {
	s := symbols{segments: []segment{{offset: 0x1000, vaddr: 0x402000, size: 0x234}, {offset: 0x1234, vaddr: 0x503234, size: 0x10}}}
	tests := []struct {
		offset, want uint64
		ok           bool
	}{
		{0xfff, 0xfff, false}, {0x1000, 0x402000, true}, {0x1233, 0x402233, true}, // two segments in a page
		{0x1234, 0x503234, true}, {0x1243, 0x503243, true}, {0x1244, 0x1244, false},
	}
	for _, test := range tests {
		if got, ok := s.vaddr(test.offset); got != test.want || ok != test.ok {
			t.Errorf("%#x: got %#x, %t, want %#x, %t", test.offset, got, ok, test.want, test.ok)
		}
	}
}

func TestNotELF(t *testing.T) {
	for _, data := range []string{"", "\x7fEL", "#!/bin/sh\n", "\x7fELF", "\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 100)} {
		s, err := readSymbols(strings.NewReader(data), int64(len(data)), "a")
		if err == nil && s.reason != NoSymbols {
			t.Errorf("%q: %+v", data, s.reason)
		}
		if strings.HasPrefix(data, elf.ELFMAG) && err == nil {
			t.Errorf("%q: no error", data)
		}
	}
}
