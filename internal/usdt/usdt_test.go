package usdt

import (
	"debug/elf"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func r(offset uint16) *Reg { return &Reg{Offset: offset, Size: 8} }

func TestX86(t *testing.T) {
	for text, want := range map[string]Arg{
		"-4@$-5":                {Size: 4, Signed: true, Disp: -5},
		"8@$0xffffffffffffffff": {Size: 8, Disp: -1},
		"8@%rdi":                {Kind: Register, Size: 8, Base: r(112)},
		"-4@%eax":               {Kind: Register, Size: 4, Signed: true, Base: &Reg{Offset: 80, Size: 4}},
		"2@%ax":                 {Kind: Register, Size: 2, Base: &Reg{Offset: 80, Size: 2}},
		"1@%al":                 {Kind: Register, Size: 1, Base: &Reg{Offset: 80, Size: 1}},
		"1@%ah":                 {Kind: Register, Size: 1, Base: &Reg{Offset: 80, Size: 1, Shift: 8}},
		"1@%dil":                {Kind: Register, Size: 1, Base: &Reg{Offset: 112, Size: 1}},
		"-8@%r15":               {Kind: Register, Size: 8, Signed: true, Base: r(0)},
		"4@%r10d":               {Kind: Register, Size: 4, Base: &Reg{Offset: 56, Size: 4}},
		"2@%r9w":                {Kind: Register, Size: 2, Base: &Reg{Offset: 64, Size: 2}},
		"1@%r8b":                {Kind: Register, Size: 1, Base: &Reg{Offset: 72, Size: 1}},
		"8@(%rsp)":              {Kind: Memory, Size: 8, Base: r(152)},
		"4@-20(%rbp)":           {Kind: Memory, Size: 4, Base: r(32), Disp: -20},
		"8@8(%rax,%rdx,4)":      {Kind: Memory, Size: 8, Base: r(80), Index: r(96), Shift: 2, Disp: 8},
		"8@(%rax,%rdx)":         {Kind: Memory, Size: 8, Base: r(80), Index: r(96)},
		"8@16(,%rdx,8)":         {Kind: Memory, Size: 8, Index: r(96), Shift: 3, Disp: 16},
		"8@value(%rip)":         {Kind: Memory, Size: 8, Base: r(128), Disp: 0x2000 - 0x1000},
		"8@value+8(%rip)":       {Kind: Memory, Size: 8, Base: r(128), Disp: 0x2008 - 0x1000},
		"8@-4+value(%rip)":      {Kind: Memory, Size: 8, Base: r(128), Disp: 0x1ffc - 0x1000},
		"8@4(%rip)":             {Kind: Memory, Size: 8, Base: r(128), Disp: 4},
		"8@value":               {Kind: Memory, Size: 8, Disp: 0x2000},
		"%rcx":                  {Kind: Register, Size: 8, Base: r(88)},
	} {
		check(t, elf.EM_X86_64, text, want)
	}
	for _, text := range []string{"8f@%xmm0", "8@%xmm0", "8@%rxx", "3@%rax", "8@", "8@none(%rip)", "8@(%rax,%rdx,3)", "8@(%rax", "x@%rax", "8@(%rax,%rdx,4,5)"} {
		checkUnsupported(t, elf.EM_X86_64, text)
	}
}

func TestARM64(t *testing.T) {
	for text, want := range map[string]Arg{
		"8@x0":                {Kind: Register, Size: 8, Base: r(0)},
		"-4@w30":              {Kind: Register, Size: 4, Signed: true, Base: &Reg{Offset: 240, Size: 4}},
		"8@sp":                {Kind: Register, Size: 8, Base: r(248)},
		"4@5":                 {Size: 4, Disp: 5},
		"-4@-1":               {Size: 4, Signed: true, Disp: -1},
		"8@xzr":               {Size: 8},
		"8@[x29, -16]":        {Kind: Memory, Size: 8, Base: r(232), Disp: -16},
		"8@[sp, #12]":         {Kind: Memory, Size: 8, Base: r(248), Disp: 12},
		"-4@[sp]":             {Kind: Memory, Size: 4, Signed: true, Base: r(248)},
		"8@[x0, x1]":          {Kind: Memory, Size: 8, Base: r(0), Index: r(8)},
		"8@[x0, x1, lsl 3]":   {Kind: Memory, Size: 8, Base: r(0), Index: r(8), Shift: 3},
		"8@[x0, w1, sxtw #2]": {Kind: Memory, Size: 8, Base: r(0), Index: &Reg{Offset: 8, Size: 4, Signed: true}, Shift: 2},
		"8@[x0, w1, uxtw]":    {Kind: Memory, Size: 8, Base: r(0), Index: &Reg{Offset: 8, Size: 4}},
	} {
		check(t, elf.EM_AARCH64, text, want)
	}
	for _, text := range []string{"8@d0", "8@x31", "8@x01", "8@[x0", "8@[5]", "8@[x0, x1, ror 3]", "8@[x0, 8, lsl 3]", "4f@s0", "8@[x0, x1, lsl 9]"} {
		checkUnsupported(t, elf.EM_AARCH64, text)
	}
}

func newReader(m elf.Machine) *reader {
	return &reader{file: &elf.File{FileHeader: elf.FileHeader{Machine: m}}, symbols: map[string]uint64{"value": 0x2000}}
}

func check(t *testing.T, m elf.Machine, text string, want Arg) {
	t.Helper()
	// The second of three arguments, to test the splitting too.
	args, err := newReader(m).args("4@"+operand(m)+" "+text+" 4@"+operand(m), 0x1000)
	if err != nil || len(args) != 3 || !reflect.DeepEqual(args[1], want) {
		t.Errorf("%s is parsed as %+v, %v, want %+v", text, args, err, want)
	}
}

func operand(m elf.Machine) string {
	if m == elf.EM_X86_64 {
		return "$1"
	}
	return "1"
}

func checkUnsupported(t *testing.T, m elf.Machine, text string) {
	t.Helper()
	if args, err := newReader(m).args(text, 0x1000); err == nil {
		t.Errorf("%s is parsed as %+v, want an error", text, args)
	}
}

func TestRead(t *testing.T) {
	lib := native.Write(t, filepath.Join(t.TempDir(), "lib.so"), []string{"one", "two"},
		native.Probe{Function: "two", Provider: "p", Name: "first", Semaphore: true},
		native.Probe{Function: "one", Provider: "provider", Name: "second"},
		native.Probe{Function: "one", Provider: "p", Name: "odd", Args: "8f@%xmm0"},
		native.Probe{Function: "two", Provider: "p", Name: "third", Semaphore: true},
	)
	f, err := binary.Open(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions, err := f.Functions()
	if err != nil {
		t.Fatal(err)
	}
	sites, err := Read(f)
	if err != nil || len(sites) != 4 {
		t.Fatalf("sites %+v, %v", sites, err)
	}
	for i, want := range []Site{
		{Provider: "p", Name: "first", Offset: functions[1].Offset},
		{Provider: "provider", Name: "second", Offset: functions[0].Offset},
		{Provider: "p", Name: "odd", Offset: functions[0].Offset},
		{Provider: "p", Name: "third", Offset: functions[1].Offset},
	} {
		got := sites[i]
		if got.Provider != want.Provider || got.Name != want.Name || got.Offset != want.Offset ||
			(got.Semaphore != 0) != (i == 0 || i == 3) || (got.Err != nil) != (i == 2) {
			t.Errorf("site %+v, want %+v", got, want)
		}
	}
	if sites[3].Semaphore-sites[0].Semaphore != 24 {
		t.Errorf("semaphores at %d and %d", sites[0].Semaphore, sites[3].Semaphore)
	}
}

func TestReadFileWithoutProbes(t *testing.T) {
	lib := native.Write(t, filepath.Join(t.TempDir(), "lib.so"), []string{"one"})
	f, err := binary.Open(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if sites, err := Read(f); err != nil || len(sites) != 0 {
		t.Errorf("sites %v, %v", sites, err)
	}
}

// FuzzNotes reads files with arbitrary bytes in the notes.
func FuzzNotes(f *testing.F) {
	lib := native.Write(f, filepath.Join(f.TempDir(), "lib.so"), []string{"one"},
		native.Probe{Function: "one", Provider: "p", Name: "n", Args: "8@x"})
	b, err := os.ReadFile(lib.Path)
	if err != nil {
		f.Fatal(err)
	}
	rest := len(b) - 1024
	for at := range 200 {
		f.Add(rest+at, byte(0x80))
	}
	f.Fuzz(func(t *testing.T, at int, val byte) {
		broken := append([]byte(nil), b...)
		broken[uint(at)%uint(len(b))] = val
		path := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := binary.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, _ = Read(f)
	})
}
