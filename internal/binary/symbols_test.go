package binary

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestSymbols compares symbols and versions of a library with the results of package elf.
func TestSymbols(t *testing.T) {
	dir := t.TempDir()
	source, script, lib := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.map"), filepath.Join(dir, "a.so")
	for file, text := range map[string]string{
		source: `extern void puts(const char *);
			void old(void) { puts("old"); }
			void new(void) { puts("new"); }
			void plain(void) {}
			__asm__(".symver old, both@V1"); __asm__(".symver new, both@@V2");`,
		script: "V1 { global: plain; }; V2 { } V1;",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, source, "-Wl,--version-script="+script).CombinedOutput()
	if err != nil {
		t.Fatalf("compile: %v: %s", err, out)
	}
	e, err := elf.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for kind, read := range map[elf.SectionType]func() ([]elf.Symbol, error){elf.SHT_DYNSYM: e.DynamicSymbols, elf.SHT_SYMTAB: e.Symbols} {
		want, err := read()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadSymbols(e, kind, lib)
		if err != nil || got.Len() != len(want)+1 {
			t.Fatalf("%v: %d symbols, %v, want %d", kind, got.Len(), err, len(want)+1)
		}
		for i, w := range want {
			s := got.At(i + 1)
			version, isOld := got.Version(i + 1)
			if got.Name(&s) != w.Name || s.Value != w.Value || s.Size != w.Size || s.Info != w.Info ||
				version != w.Version || isOld != w.VersionIndex.IsHidden() {
				t.Errorf("symbol %d: %+v %q version %q, old %v, want %+v", i+1, s, got.Name(&s), version, isOld, w)
			}
		}
	}
	all, err := open(t, lib).Functions()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"both", "both@V1", "plain"} {
		if !slices.ContainsFunc(all, func(f Function) bool { return f.Label() == want }) {
			t.Errorf("no function %s in %+v", want, all)
		}
	}
}

// FuzzSymbols reads damaged version records and symbol names.
func FuzzSymbols(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 2, 0, 1, 0, 9, 9, 9, 9, 20, 0, 0, 0, 20, 0, 0, 0}, []byte{1, 0, 1, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0}, "\x00a\x00b")
	f.Fuzz(func(t *testing.T, defined, needed []byte, names string) {
		s := &Symbols{order: binary.LittleEndian, names: names, versionNames: map[uint16]uint32{}}
		s.readDefined(defined)
		s.readNeeded(needed)
		if n := len(s.versionNames); n > (len(defined)+len(needed))/4 {
			t.Errorf("%d versions from %d bytes of records", n, len(defined)+len(needed))
		}
		for _, offset := range s.versionNames {
			if len(s.text(offset)) > len(names) {
				t.Errorf("name at %d is longer than the section of names (%d bytes)", offset, len(names))
			}
		}
	})
}
