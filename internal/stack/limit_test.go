package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/limit"
)

// TestPerfMapLimit reads perf maps with more functions than are kept. Functions that later lines
// replace must not count.
func TestPerfMapLimit(t *testing.T) {
	const maxFunctions = 64
	var text strings.Builder
	for round := range 100 {
		for i := range 40 {
			fmt.Fprintf(&text, "%x 10 f%d_%d\n", 0x1000+i*0x10, i, round)
		}
	}
	read := func(text string, maxBytes int64) (*table, error) {
		return parsePerfMapUpTo(strings.NewReader(text), int64(len(text)), "/tmp/perf-1.map", maxBytes, maxFunctions)
	}
	got, err := read(text.String(), 1<<20)
	if err != nil {
		t.Errorf("40 functions, written a hundred times: %v", err)
	}
	for i := range 40 {
		if name, want := got.at(uint64(0x1000+i*0x10)), fmt.Sprintf("f%d_99", i); name != want {
			t.Errorf("function %d is %q, want %q", i, name, want)
		}
	}
	text.Reset()
	for i := range 2 * maxFunctions {
		fmt.Fprintf(&text, "%x 10 f%d\n", 0x1000+i*0x10, i)
	}
	got, err = read(text.String(), 1<<20)
	if want := (&limit.Error{Input: "/tmp/perf-1.map", Max: maxFunctions, Unit: "functions"}).Error(); !errors.Is(err, limit.ErrExceeded) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if n := len(got.starts); n != maxFunctions {
		t.Errorf("%d functions, want %d", n, maxFunctions)
	}
	// If a file is too long, its end is read, without the incomplete first line.
	got, err = read("7fff10 10 first\n20 10 second\n", int64(len("10 10 first\n20 10 second\n")))
	if !errors.Is(err, limit.ErrExceeded) || got.at(0x10) != "" || got.at(0x20) != "second" {
		t.Errorf("end of a file: %q at 0x10, %q at 0x20, %v", got.at(0x10), got.at(0x20), err)
	}
}

// TestSparsePerfMap reads a sparse file of 1 TiB.
func TestSparsePerfMap(t *testing.T) {
	f := sparse(t, 1<<40)
	got, err := parsePerfMapUpTo(f, 1<<40, "a", 1<<20, limit.JITFunctions)
	if !errors.Is(err, limit.ErrExceeded) || len(got.starts) != 0 {
		t.Errorf("%d functions, %v", len(got.starts), err)
	}
}

// TestSparsePerfMapEnd reads sparse files that end with a valid line. The part that is read begins in
// a line that is longer than a line may be: only this line must be left out.
func TestSparsePerfMapEnd(t *testing.T) {
	const last = "\n10 20 first\n40 20 last\n"
	for _, size := range []int64{2 << 20, 1 << 40} {
		f := sparse(t, size)
		if _, err := f.WriteAt([]byte(last), size-int64(len(last))); err != nil {
			t.Fatal(err)
		}
		r := &countReader{f, 0}
		got, err := parsePerfMapUpTo(r, size, "a", 1<<20, limit.JITFunctions)
		if !errors.Is(err, limit.ErrExceeded) || got.at(0x10) != "first" || got.at(0x40) != "last" {
			t.Errorf("%d bytes: %q at 0x10, %q at 0x40, %v", size, got.at(0x10), got.at(0x40), err)
		}
		if r.n > 1<<20 {
			t.Errorf("%d bytes: %d are read, want at most %d", size, r.n, 1<<20)
		}
	}
}

func sparse(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Skipf("create a sparse file of %d bytes: %v", size, err)
	}
	return f
}

// countReader counts the bytes that are read.
type countReader struct {
	io.ReaderAt
	n int64
}

func (c *countReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, at)
	c.n += int64(n)
	return n, err
}

// TestJITDumpBodies reads a dump with records of 4 GiB. The code in them must not be read.
func TestJITDumpBodies(t *testing.T) {
	const records, size = 200, 1<<32 - 1
	f := sparse(t, records*size+1<<20)
	w := newDump(binary.LittleEndian, 0)
	at := int64(w.Len())
	if _, err := f.WriteAt(w.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		var b [16 + 40 + 2]byte
		binary.LittleEndian.PutUint32(b[4:], size)
		binary.LittleEndian.PutUint64(b[16+16:], uint64(0x1000+i*0x10)) // address
		binary.LittleEndian.PutUint64(b[16+24:], size-uint64(len(b)))   // of code
		binary.LittleEndian.PutUint64(b[16+32:], uint64(i))             // index
		b[len(b)-2] = 'f'
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		at += size
	}
	r := &countReader{f, 0}
	d, err := parseJITDump(r, "a")
	if err != nil || len(d.codes) != records {
		t.Fatalf("%d functions, %v, want %d", len(d.codes), err, records)
	}
	if maxBytes := int64(records+1) * 64 << 10; r.n > maxBytes {
		t.Errorf("read %d bytes, want at most %d", r.n, maxBytes)
	}
}

// TestMapsLimit reads more mappings than are kept.
func TestMapsLimit(t *testing.T) {
	var text strings.Builder
	for i := range limit.Mappings + 10 {
		fmt.Fprintf(&text, "%x-%x r--p 0 08:01 5 /a\n", 0x1000000+i*0x2000, 0x1000000+i*0x2000+0x1000)
		fmt.Fprintf(&text, "%x-%x r-xp 1000 08:01 5 /a\n", 0x1000000+i*0x2000+0x1000, 0x1000000+i*0x2000+0x2000)
	}
	maps, isAny, err := parseMaps(strings.NewReader(text.String()), "/proc/1/maps")
	want := fmt.Sprintf("/proc/1/maps has more than %d executable mappings", limit.Mappings)
	if len(maps) != limit.Mappings || !isAny || err == nil || err.Error() != want {
		t.Errorf("%d mappings, %v, want %s", len(maps), err, want)
	}
}
