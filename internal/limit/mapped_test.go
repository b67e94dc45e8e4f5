package limit

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sectionOf writes a file with contents and returns it, with a section of size bytes at an
// offset that is no multiple of the page size.
func sectionOf(t *testing.T, fileSize, size uint64) (*os.File, *elf.Section, []byte) {
	t.Helper()
	const offset = 1000
	contents := make([]byte, fileSize)
	for i := range contents {
		contents[i] = byte(i * i >> 3)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s := &elf.Section{SectionHeader: elf.SectionHeader{Type: elf.SHT_PROGBITS, Offset: offset, Size: size, FileSize: size}}
	s.ReaderAt = io.NewSectionReader(f, offset, int64(size))
	return f, s, contents[offset:][:min(size, fileSize-offset)]
}

// isMapped reports whether this process maps the file.
func isMapped(t *testing.T, f *os.File) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), f.Name())
}

// TestWithSection reads a section of a file, which is mapped until use returns, and of memory.
func TestWithSection(t *testing.T) {
	f, s, want := sectionOf(t, 100_000, 50_000)
	for _, r := range []io.ReaderAt{f, bytes.NewReader(nil)} {
		calls := 0
		err := WithSection(s, r, "a", 50_000, func(got []byte) {
			calls++
			if !bytes.Equal(got, want) {
				t.Errorf("%T: %d bytes are not the contents of the section", r, len(got))
			}
			if mapped := isMapped(t, f); mapped != (r == f) {
				t.Errorf("%T: mapped is %v", r, mapped)
			}
		})
		if err != nil || calls != 1 {
			t.Errorf("%T: %d calls, error %v", r, calls, err)
		}
		if isMapped(t, f) {
			t.Errorf("%T: still mapped", r)
		}
		if err := WithSection(s, r, "a", 49_999, func([]byte) { t.Error("called") }); !errors.Is(err, ErrExceeded) {
			t.Errorf("%T: error for a limit of a byte less is %v", r, err)
		}
	}
}

// TestWithSectionShort reads a section of a file that is shorter, or becomes shorter.
func TestWithSectionShort(t *testing.T) {
	sum := 0
	last := func(contents []byte) { sum += int(contents[len(contents)-1]) }
	f, s, _ := sectionOf(t, 20_000, 50_000)
	if err := WithSection(s, f, "a", 1<<20, last); !errors.Is(err, errNoPage) {
		t.Errorf("error for a file that is shorter than the section is %v", err)
	}
	f, s, _ = sectionOf(t, 100_000, 50_000)
	err := WithSection(s, f, "a", 1<<20, func(contents []byte) {
		last(contents)
		if err := f.Truncate(5000); err != nil {
			t.Error(err)
		}
		last(contents)
		t.Error("read contents that do not exist any more")
	})
	if !errors.Is(err, errNoPage) || isMapped(t, f) {
		t.Errorf("error for a file that becomes shorter is %v", err)
	}
}

// TestWithSectionPanic checks that panics of use are not taken for pages that cannot be read.
func TestWithSectionPanic(t *testing.T) {
	f, s, _ := sectionOf(t, 100_000, 50_000)
	defer func() {
		if p := recover(); p != "own" || isMapped(t, f) {
			t.Errorf("panic is %v", p)
		}
	}()
	_ = WithSection(s, f, "a", 1<<20, func([]byte) { panic("own") })
}
