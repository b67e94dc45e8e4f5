package limit

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for max, want := range map[int64]string{6: "12345", 5: "12345", 4: "1234", 0: ""} {
		got, err := ReadFile(path, max)
		if string(got) != want || errors.Is(err, ErrExceeded) != (max < 5) || err != nil && max >= 5 {
			t.Errorf("at most %d bytes: %q, %v", max, got, err)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir()} {
		if b, err := ReadFile(path, 10); err == nil {
			t.Errorf("%s: read %q, want an error", path, b)
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for _, test := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"a\n\nb\n", []string{"a", "", "b"}},
		{"a\nb", []string{"a"}},
		{long + "\nb\n", []string{"b"}},
		{"a\n" + long, []string{"a"}},
		{"a\n" + long + "\nb\n" + long + "\n", []string{"a", "b"}},
		{strings.Repeat("x", maxLine-1) + "\n", []string{strings.Repeat("x", maxLine-1)}},
	} {
		var got []string
		err := Lines(strings.NewReader(test.in), func(line []byte) bool {
			got = append(got, string(line))
			return true
		})
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%.20q: %d lines, %v, want %d", test.in, len(got), err, len(test.want))
		}
	}
	n := 0
	_ = Lines(strings.NewReader("a\nb\n"), func([]byte) bool { n++; return false })
	if n != 1 {
		t.Errorf("%d lines, although yield returned false for the first", n)
	}
}

func TestPaths(t *testing.T) {
	var p Paths
	for i := range 4 * MappingPaths / 4096 {
		path := fmt.Appendf(nil, "/%04d%s", i%1000, strings.Repeat("x", 4096))
		if _, ok := p.Intern(path); !ok {
			t.Fatalf("path %d does not fit, of 1000 different ones", i)
		}
	}
	for i := range 2 * MappingPaths / 4096 {
		path := fmt.Appendf(nil, "/%04d%s", i, strings.Repeat("y", 4096))
		if _, ok := p.Intern(path); !ok {
			if err := p.Exceeded("/proc/1/maps"); !errors.Is(err, ErrExceeded) || !strings.Contains(err.Error(), "paths in /proc/1/maps") {
				t.Errorf("error %v", err)
			}
			return
		}
	}
	t.Error("the paths are not bounded")
}

func TestReporter(t *testing.T) {
	var got []string
	r := NewReporter(func(err error) { got = append(got, err.Error()) })
	limit := &Error{"/a", 5, "bytes"}
	r.Report(1, limit, "it is cut")
	r.Report(1, limit, "it is cut")
	r.Report(2, limit, "it is cut")
	r.Report(0, limit, "it is cut")
	want := []string{
		"process 1: /a has more than 5 bytes: it is cut",
		"process 2: /a has more than 5 bytes: it is cut",
		"/a has more than 5 bytes: it is cut",
	}
	if !slices.Equal(got, want) {
		t.Errorf("reports %q, want %q", got, want)
	}
	for i := range 2 * maxReports {
		r.Report(i, limit, "")
	}
	if len(got) != maxReports+1 || !strings.Contains(got[maxReports], "not reported") {
		t.Errorf("%d reports, the last %q", len(got), got[len(got)-1])
	}
	var none *Reporter
	none.Report(1, limit, "")
}

// image returns an ELF file with these sections, whose headers follow the ELF header.
func image(sections []elf.Section64, names string) []byte {
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shentsize: 64,
		Shoff: 64, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	last := &sections[len(sections)-1]
	last.Type, last.Off, last.Size = uint32(elf.SHT_STRTAB), uint64(64+64*len(sections)), max(last.Size, uint64(len(names)))
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, &h)
	binary.Write(&b, binary.LittleEndian, sections)
	b.WriteString(names)
	return b.Bytes()
}

func TestELFHeader(t *testing.T) {
	parse := func(b []byte) error {
		_, err := ELF(bytes.NewReader(b), "/a")
		return err
	}
	if err := parse(image(make([]elf.Section64, Sections), "\x00")); err != nil {
		t.Errorf("%d sections: %v", Sections, err)
	}
	if err := parse(image(make([]elf.Section64, Sections+1), "\x00")); !errors.Is(err, ErrExceeded) {
		t.Errorf("%d sections: %v, want %v", Sections+1, err, ErrExceeded)
	}
	many := image([]elf.Section64{{Size: 1 << 40}, {}}, "\x00")
	binary.LittleEndian.PutUint16(many[60:], 0) // the first section has the number
	if err := parse(many); !errors.Is(err, ErrExceeded) {
		t.Errorf("2^40 sections: %v, want %v", err, ErrExceeded)
	}
	if err := parse(image([]elf.Section64{{}, {Size: 1 << 40}}, "\x00")); !errors.Is(err, ErrExceeded) {
		t.Errorf("1 TiB of names: %v, want %v", err, ErrExceeded)
	}
	if err := parse(image([]elf.Section64{{}, {Flags: uint64(elf.SHF_COMPRESSED)}}, "\x00")); err == nil {
		t.Error("compressed names: no error")
	}
}

// TestSections reads sections whose size exceeds the file, and sections in both compressed formats.
func TestSections(t *testing.T) {
	const size = 1 << 20
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write(make([]byte, size))
	z.Close()
	head := elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: size}
	var current, old bytes.Buffer
	binary.Write(&current, binary.LittleEndian, &head)
	current.Write(packed.Bytes())
	old.WriteString("ZLIB")
	binary.Write(&old, binary.BigEndian, uint64(size))
	old.Write(packed.Bytes())

	names := "\x00.debug_info\x00.zdebug_line\x00.symtab\x00.huge\x00"
	at := func(name string) uint32 { return uint32(strings.Index(names, name)) }
	start := uint64(64 + 64*6 + len(names))
	compressed := uint64(elf.SHF_COMPRESSED)
	b := image([]elf.Section64{
		{},
		{Name: at(".debug_info"), Type: 1, Flags: compressed, Off: start, Size: uint64(current.Len())},
		{Name: at(".zdebug_line"), Type: 1, Off: start + uint64(current.Len()), Size: uint64(old.Len())},
		{Name: at(".symtab"), Type: uint32(elf.SHT_SYMTAB), Flags: compressed, Off: start, Size: uint64(current.Len())},
		{Name: at(".huge"), Type: 1, Off: start, Size: 1 << 34},
		{},
	}, names)
	b = append(append(b, current.Bytes()...), old.Bytes()...)
	f, err := ELF(bytes.NewReader(b), "/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".debug_info", ".zdebug_line"} {
		if got, err := Decompressed(f.Section(name), "/a", size); err != nil || len(got) != size {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, size)
		}
		if _, err := Decompressed(f.Section(name), "/a", size-1); !errors.Is(err, ErrExceeded) {
			t.Errorf("%s: %v, want %v", name, err, ErrExceeded)
		}
		if name == ".debug_info" {
			if _, err := Section(f.Section(name), "/a", size); err == nil {
				t.Errorf("%s: no error for a compressed section", name)
			}
		}
	}
	if _, err := f.Symbols(); !errors.Is(err, elf.ErrNoSymbols) {
		t.Errorf("a compressed symbol table: %v, want %v", err, elf.ErrNoSymbols)
	}
	if _, err := Section(f.Section(".huge"), "/a", 1<<30); !errors.Is(err, ErrExceeded) {
		t.Errorf("16 GiB: %v, want %v", err, ErrExceeded)
	}
	if _, err := Section(f.Section(".huge"), "/a", 1<<40); err == nil {
		t.Error("a section that the file does not have: no error")
	}
}

func FuzzELF(f *testing.F) {
	f.Add(image([]elf.Section64{{}, {Name: 1, Type: 1, Size: 10}, {}}, "\x00.debug_info\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer func() { _ = recover() }() // of debug/elf, as callers do
		e, err := ELF(bytes.NewReader(data), "/a")
		if err != nil {
			return
		}
		if len(e.Sections) > Sections {
			t.Errorf("%d sections", len(e.Sections))
		}
		for _, s := range e.Sections {
			const most = 1 << 16
			if b, err := Section(s, "/a", most); len(b) > most || err == nil && s.Flags&elf.SHF_COMPRESSED != 0 {
				t.Errorf("%s: %d bytes", s.Name, len(b))
			}
			if b, _ := Decompressed(s, "/a", most); len(b) > most {
				t.Errorf("%s: %d bytes decompressed", s.Name, len(b))
			}
		}
	})
}
