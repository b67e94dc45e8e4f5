package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	binaries "github.com/corescope/corescope/internal/binary"
)

// fake implements Maps in memory. rule looks up a row as BPF programs do.
type fake struct {
	rules   map[uint32]Rule
	blocks  map[uint32]any
	files   map[binaries.KernelID]*File
	now     time.Duration
	settled int
	refuse  bool // PutBlock fails
}

func newFake() *fake {
	return &fake{rules: map[uint32]Rule{}, blocks: map[uint32]any{}, files: map[binaries.KernelID]*File{}, now: time.Hour}
}

func (f *fake) PutRule(at uint32, r Rule) error { f.rules[at] = r; return nil }

func (f *fake) PutBlock(at uint32, block any) error {
	if f.refuse {
		return errors.New("refused")
	}
	f.blocks[at] = block
	return nil
}

func (f *fake) PutFile(id binaries.KernelID, file *File) error {
	c := *file
	f.files[id] = &c
	return nil
}

func (f *fake) DropFile(id binaries.KernelID) error { delete(f.files, id); return nil }

func (f *fake) Used(id binaries.KernelID) (uint64, error) {
	if file := f.files[id]; file != nil {
		return file.Used, nil
	}
	return 0, os.ErrNotExist
}

func (f *fake) Settle() error { f.settled++; return nil }
func (f *fake) Now() uint64   { return uint64(f.now) }
func (f *fake) Close() error  { return nil }

// rule returns the rule for a file offset.
func (f *fake) rule(id binaries.KernelID, offset uint32) Rule {
	file := f.files[id]
	if file == nil || file.Levels == 0 || offset < file.Base {
		return 0
	}
	block, base := file.Root, file.Base
	for range file.Levels - 1 {
		n := f.blocks[block].(*Node)
		at := lastNotAbove(n.Base[:], offset)
		block, base = n.Block[at], n.Base[at]
	}
	l := f.blocks[block].(*Leaf)
	return f.rules[uint32(l.Rule[lastNotAbove(l.Offset[:], uint16(min(offset-base, 0xffff)))])]
}

func lastNotAbove[T cmp.Ordered](all []T, key T) int {
	last := 0
	for i := range all {
		if all[i] <= key {
			last = i
		}
	}
	return last
}

// program writes an ELF file with an unwind table of a number of rows, and returns the rows.
func program(t testing.TB, rows int) (path string, want []Row) {
	t.Helper()
	const vaddr, offset, step = 0x20_0000, 0x1000, 64
	var section []byte
	entry := func(id uint32, body []byte) {
		section = binary.LittleEndian.AppendUint32(section, uint32(len(body)+4))
		section = append(binary.LittleEndian.AppendUint32(section, id), body...)
	}
	entry(0, []byte{1, 'z', 'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1}) // absolute addresses
	for i := range rows {
		start := vaddr + offset + uint64(i*step)
		b := binary.LittleEndian.AppendUint64(nil, start)
		b = append(binary.LittleEndian.AppendUint64(b, step), 0, 0x0e)
		size := 16 + 8*(i%500)
		b = append(b, byte(size&0x7f|0x80), byte(size>>7))
		entry(uint32(len(section)+4), b)
		want = append(want, Row{uint32(offset + i*step), newRule(BaseSP, int64(size), 0, -8)})
	}
	return writeELF(t, section, vaddr, offset, uint64(rows*step)), want
}

// writeELF writes a program with one executable segment that is followed by .eh_frame.
func writeELF(t testing.TB, frames []byte, vaddr, offset, size uint64) string {
	t.Helper()
	const names = "\x00.eh_frame\x00.shstrtab\x00"
	at := offset + size
	var b []byte
	put := func(v any) { b, _ = binary.Append(b, binary.LittleEndian, v) }
	put(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(machineHere()), Version: 1,
		Phoff: 64, Shoff: at + uint64(len(frames)+len(names)), Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: offset, Vaddr: vaddr + offset, Filesz: size, Memsz: size})
	b = append(b, make([]byte, at-uint64(len(b)))...)
	b = append(append(b, frames...), names...)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Addr: vaddr + at, Off: at, Size: uint64(len(frames))})
	put(elf.Section64{Name: 11, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(frames)), Size: uint64(len(names))})
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func machineHere() elf.Machine {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return elf.EM_X86_64
	}
	defer f.Close()
	return f.Machine
}

func onAMD64(t *testing.T) {
	t.Helper()
	if machineHere() != elf.EM_X86_64 {
		t.Skip("the rules in the test file are for amd64")
	}
}

func idOf(n uint64) binaries.KernelID { return binaries.KernelID{Inode: n} }

var largeLimits = Limits{Rules: 1 << 14, Blocks: 1 << 12, Files: 100, Rows: 1 << 16, Levels: 5}

// TestAdd looks up the rule of each row, in trees of one to three levels.
func TestAdd(t *testing.T) {
	onAMD64(t)
	for levels, rows := range map[uint32]int{1: 100, 2: 3000, 3: 20_000} {
		path, want := program(t, rows)
		maps := newFake()
		tables := New(maps, largeLimits)
		if err := tables.Add(idOf(1), path, "program"); err != nil {
			t.Fatal(err)
		}
		if got := maps.files[idOf(1)].Levels; got != levels {
			t.Errorf("%d rows have %d levels, want %d", rows, got, levels)
		}
		for _, r := range want {
			for _, offset := range []uint32{r.PC, r.PC + 63} {
				if got := maps.rule(idOf(1), offset); got != r.Rule {
					t.Fatalf("%d rows: rule of %#x is %#x, want %#x", rows, offset, got, r.Rule)
				}
			}
		}
		for _, offset := range []uint32{0, want[0].PC - 1, want[len(want)-1].PC + 64, 1 << 31} {
			if got := maps.rule(idOf(1), offset); got != 0 {
				t.Errorf("%d rows: rule of %#x is %#x, want none", rows, offset, got)
			}
		}
	}
}

// TestReadOnce checks that a file is read once, even if it has several IDs or no table.
func TestReadOnce(t *testing.T) {
	onAMD64(t)
	path, _ := program(t, 10)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"program": path, "text": text, "device": "/dev/zero"} {
		maps := newFake()
		tables := New(maps, largeLimits)
		for range 2 {
			if err := tables.Add(idOf(1), path, name); err != nil {
				t.Fatal(err)
			}
		}
		blocks := tables.freeBlocks()
		if err := tables.Add(idOf(2), path, name); err != nil || tables.freeBlocks() != blocks || len(maps.files) != 2 {
			t.Errorf("%s: %d blocks were free, now %d; files are %v: %v", name, blocks, tables.freeBlocks(), maps.files, err)
		}
		if maps.files[idOf(1)].Levels != maps.files[idOf(2)].Levels {
			t.Errorf("%s: files are %v", name, maps.files)
		}
	}
}

// TestFull checks that each file that does not fit is reported once, by name, and not read again.
func TestFull(t *testing.T) {
	onAMD64(t)
	large, _ := program(t, 3000)
	huge, _ := program(t, 50_000)
	maps := newFake()
	tables := New(maps, Limits{Rules: 1 << 14, Blocks: 30, Files: 100, Rows: 1 << 13, Levels: 5})
	if err := tables.Add(idOf(1), large, "first"); err != nil {
		t.Fatal(err)
	}
	tooMany := fmt.Sprintf("huge: %v: the file has more than %d rules", ErrLarge, 1<<13)
	for path, want := range map[string]string{copyOf(t, large): "large: " + ErrFull.Error(), huge: tooMany} {
		name, _, _ := strings.Cut(want, ":")
		id := idOf(uint64(len(name)))
		if err := tables.Add(id, path, name); fmt.Sprint(err) != want || !errors.Is(err, ErrFull) && !errors.Is(err, ErrLarge) {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
		if !tables.Has(id) || maps.files[id] == nil || maps.files[id].Levels != 0 {
			t.Errorf("%s: file is %+v, want one without a table", name, maps.files[id])
		}
		if err := tables.Add(id, path, name); err != nil {
			t.Errorf("%s: the same file is reported again: %v", name, err)
		}
	}
	maps.refuse = true
	small, _ := program(t, 10)
	if err := tables.Add(idOf(9), small, "small"); !errors.Is(err, ErrFull) || maps.files[idOf(9)].Levels != 0 {
		t.Errorf("blocks cannot be written: got %v, %+v; want %v and no table", err, maps.files[idOf(9)], ErrFull)
	}
}

func copyOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestEvict checks that idle tables are evicted, the least recently used first, and others are not.
func TestEvict(t *testing.T) {
	onAMD64(t)
	maps := newFake()
	tables := New(maps, Limits{Rules: 1 << 14, Blocks: 60, Files: 100, Rows: 1 << 16, Levels: 5})
	add := func(n uint64) error {
		path, _ := program(t, 3000)
		return tables.Add(idOf(n), path, fmt.Sprint(n))
	}
	if err := errors.Join(add(1), add(2)); err != nil {
		t.Fatal(err)
	}
	if err := add(3); !errors.Is(err, ErrFull) {
		t.Fatalf("third file: got error %v, want %v", err, ErrFull)
	}
	maps.now += idleAfter + time.Second
	maps.files[idOf(1)].Used = maps.Now()
	if tables.RetryRefused(); !tables.Has(idOf(3)) {
		t.Error("a file that is not in use is tried again")
	}
	maps.now += idleAfter + time.Second
	maps.files[idOf(1)].Used, maps.files[idOf(3)].Used = maps.Now(), maps.Now()
	if tables.RetryRefused(); tables.Has(idOf(3)) || maps.files[idOf(3)] != nil {
		t.Error("a file that is in use is not tried again")
	}
	if err := add(3); err != nil {
		t.Errorf("no idle table was evicted: %v", err)
	}
	if maps.files[idOf(1)] == nil || maps.files[idOf(2)] != nil || maps.files[idOf(3)].Levels == 0 || maps.settled == 0 {
		t.Errorf("files are %v, want 1 and 3 with tables", maps.files)
	}
}

// TestFiles checks that the least recently used file is evicted if there are too many.
func TestFiles(t *testing.T) {
	onAMD64(t)
	maps := newFake()
	tables := New(maps, Limits{Rules: 1 << 14, Blocks: 60, Files: 3, Rows: 1 << 16, Levels: 5})
	for n := range uint64(10) {
		maps.now += time.Second
		path, _ := program(t, 10)
		if err := tables.Add(idOf(n), path, "program"); err != nil {
			t.Fatal(err)
		}
	}
	if len(maps.files) != 3 || len(tables.files) != 3 || !tables.Has(idOf(9)) || tables.freeBlocks() != 57 {
		t.Errorf("files are %v, want three with 9 among them; %d blocks are free, want 57", maps.files, tables.freeBlocks())
	}
}

// TestByOffset checks the conversion to file offsets with several segments, one of which overlaps.
func TestByOffset(t *testing.T) {
	rule := func(n int64) Rule { return newRule(BaseSP, 8*n, 0, -8) }
	c := code{
		rows: []Row{{0x1000, rule(1)}, {0x1010, rule(2)}, {0x5000, rule(3)}, {0x5010, 0}},
		segments: []elf.ProgHeader{
			{Off: 0x800, Vaddr: 0x5000, Filesz: 0x100}, {Off: 0x200, Vaddr: 0x1008, Filesz: 0x18}, {Off: 0x210, Vaddr: 0x1000, Filesz: 8},
		},
	}
	want := []Row{{0x200, rule(1)}, {0x208, rule(2)}, {0x218, 0}, {0x800, rule(3)}, {0x810, 0}}
	var got []Row
	c.byOffset(func(offset uint32, r Rule) { got = appendRow(got, offset, r) })
	if !slices.Equal(got, want) {
		t.Errorf("rows are %x, want %x", got, want)
	}
}
