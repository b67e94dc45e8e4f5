package stack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// dumpWriter writes a jitdump.
type dumpWriter struct {
	bytes.Buffer
	order binary.ByteOrder
}

func newDump(order binary.ByteOrder, flags uint64) *dumpWriter {
	w := &dumpWriter{order: order}
	w.put(uint32(0x4a695444), uint32(1), uint32(40), uint32(62), uint32(0), uint32(1), uint64(0), flags)
	return w
}

func (w *dumpWriter) put(words ...any) {
	for _, word := range words {
		_ = binary.Write(w, w.order, word)
	}
}

func (w *dumpWriter) load(time, start uint64, code []byte, index uint64, name string) {
	w.put(uint32(jitLoad), uint32(56+len(name)+1+len(code)), time, uint32(1), uint32(1), start, start, uint64(len(code)), index)
	w.WriteString(name + "\x00")
	w.Write(code)
}

func (w *dumpWriter) move(time, from, to, size, index uint64) {
	w.put(uint32(jitMove), uint32(64), time, uint32(1), uint32(1), to, from, to, size, index)
}

// other writes a record that does not describe code, for example source lines.
func (w *dumpWriter) other(kind uint32, size int) {
	w.put(kind, uint32(16+size), uint64(1))
	w.Write(make([]byte, size))
}

// dump returns a dump with functions that are added, moved and overwritten. One record of another
// type has the given size.
func dump(order binary.ByteOrder, flags uint64, size int) *dumpWriter {
	w := newDump(order, flags)
	w.other(2, 99)
	w.load(10, 0x1000, make([]byte, 0x100), 1, "first")
	w.load(20, 0x1100, make([]byte, 0x80), 2, "neighbour <a;b>")
	w.other(4, size)
	w.load(30, 0x1000, make([]byte, 0x40), 3, "second")
	w.move(40, 0x1100, 0x3000, 0x80, 2)
	w.load(50, 0x10c0, make([]byte, 0x20), 4, "between")
	return w
}

func TestJITDump(t *testing.T) {
	tests := []struct {
		addr, at uint64
		want     string
	}{
		{0xfff, 0, ""}, {0x1000, 0, "second"}, {0x103f, 0, "second"},
		{0x1040, 0, ""}, // a part of first, which second has overwritten
		{0x10c0, 0, "between"}, {0x10df, 0, "between"}, {0x10e0, 0, ""},
		{0x1100, 0, "neighbour <a;b>"}, {0x117f, 0, "neighbour <a;b>"}, {0x1180, 0, ""},
		{0x3001, 0, "neighbour <a;b>"}, {^uint64(0), 0, ""},
		{0x1000, 9, ""}, {0x1000, 10, "first"}, {0x1040, 29, "first"}, {0x1000, 29, "first"},
		{0x1000, 30, "second"}, {0x1040, 30, ""}, {0x10c0, 49, ""}, {0x10c0, 51, "between"},
		{0x3000, 39, ""}, {0x3000, 40, "neighbour <a;b>"},
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		d, err := parseJITDump(bytes.NewReader(dump(order, 0, 70_000).Bytes()), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			if name, _ := d.find(test.addr, test.at); string(name) != test.want {
				t.Errorf("%v: %#x at %d: got %q, want %q", order, test.addr, test.at, name, test.want)
			}
		}
	}
}

// TestJITDumpOtherClock checks that times of another clock are ignored and the newest code is used.
func TestJITDumpOtherClock(t *testing.T) {
	d, err := parseJITDump(bytes.NewReader(dump(binary.LittleEndian, 1, 9).Bytes()), "a")
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := d.find(0x1000, 5); string(name) != "second" {
		t.Errorf("got %q, want second", name)
	}
}

// TestJITDumpTruncated reads every beginning of a dump, as if it were being written.
func TestJITDumpTruncated(t *testing.T) {
	whole := dump(binary.LittleEndian, 0, 9).Bytes()
	for n := range len(whole) {
		d, err := parseJITDump(bytes.NewReader(whole[:n]), "a")
		if n < 40 {
			if !errors.Is(err, errJITDump) {
				t.Errorf("%d bytes: got error %v, want %v", n, err, errJITDump)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.codes {
			if c.start > 0x3000 || c.size > 0x100 {
				t.Errorf("%d bytes: got function %+v, which is not in the dump", n, c)
			}
		}
	}
}

func TestIsJITDump(t *testing.T) {
	for file, want := range map[string]bool{
		"/tmp/jit-12.dump": true, "/a/jit-1.dump (deleted)": true, "/tmp/jit-.dump": false,
		"/tmp/jit-x.dump": false, "/tmp/jit-1.dump.so": false, "/jit-1.dump/a": false, "[anon]": false,
	} {
		if isJITDump(file) != want {
			t.Errorf("%s: %v", file, !want)
		}
	}
}

// dumper maps two executable pages: anonymous memory, and the dump given as its argument.
const dumper = `
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
	void *page = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open(argv[1], O_RDONLY);
	printf("%p %p\n", page, mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
`

func TestProcessJITDump(t *testing.T) {
	program, file := compile(t, dumper), filepath.Join(t.TempDir(), "jit-1.dump")
	w := newDump(binary.LittleEndian, 0)
	write := func() {
		t.Helper()
		if err := os.WriteFile(file, w.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	c, ps := start(t, program, file), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock }
	page := c.addrs[0]
	if f := ps.name(c.pid(), page); f.Name != "" || f.Module != "[anon]" {
		t.Errorf("with an empty dump: got %#v", f)
	}

	before := monotonic()
	w.load(before, page, make([]byte, 0x20), 1, "_ZN1a1bEv;x")
	write()
	clock = clock.Add(time.Second)
	f := ps.name(c.pid(), page+0x10)
	expect(t, f, "_ZN1a1bEv;x", 0x10)
	if f.Module != file {
		t.Errorf("module %q", f.Module)
	}

	w.load(monotonic(), page, make([]byte, 0x20), 2, "replacement")
	write()
	clock = clock.Add(time.Second)
	at := func(time uint64) Frame { return ps.AppendAt(nil, c.pid(), []uint64{page}, time)[0] }
	expect(t, at(monotonic()), "replacement", 0) // reads the dump again, which was read before that time
	expect(t, at(before+1), "_ZN1a1bEv;x", 0)

	c.stop()
	clock = clock.Add(time.Second)
	expect(t, ps.name(c.pid(), page), "replacement", 0)
	ps.Forget(c.pid())
	for _, m := range ps.cache.modules {
		if m.key.kind == kindJITDump {
			t.Error("the jitdump is still cached after Forget")
		}
	}
}

// BenchmarkJITDump reads a dump of 50,000 functions and looks up addresses.
func BenchmarkJITDump(b *testing.B) {
	w := newDump(binary.LittleEndian, 0)
	code := make([]byte, 400)
	for i := range uint64(50_000) {
		w.load(i+1, 0x7f0000000000+i*512, code, i, fmt.Sprintf("LazyCompile:~function%d /path/of/it.js:%d", i, i))
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(w.Len()))
		for b.Loop() {
			if d, err := parseJITDump(bytes.NewReader(w.Bytes()), "a"); err != nil || len(d.codes) != 50_000 {
				b.Fatal(err)
			}
		}
	})
	d, err := parseJITDump(bytes.NewReader(w.Bytes()), "a")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("find", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			d.find(0x7f0000000000+i*7919%50_000*512+8, 0)
		}
	})
}

func FuzzJITDump(f *testing.F) {
	f.Add(dump(binary.LittleEndian, 0, 9).Bytes(), uint64(0x1000), uint64(0))
	f.Add(dump(binary.BigEndian, 1, 9).Bytes(), uint64(0x3000), uint64(40))
	f.Fuzz(func(t *testing.T, data []byte, addr, at uint64) {
		d, err := parseJITDump(bytes.NewReader(data), "a")
		if err != nil {
			return
		}
		name, start := d.find(addr, at)
		if len(name) > 0 && start > addr {
			t.Errorf("%q at %#x covers %#x", name, start, addr)
		}
		if len(d.names) > len(data)+len(d.codes) {
			t.Errorf("%d bytes of names in a dump of %d", len(d.names), len(data))
		}
	})
}
