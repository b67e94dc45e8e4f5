package code

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// assembly has functions without unwind information, one of them without a size. The code between
// unsized and last has no symbol.
const assembly = `
asm(".text\n"
    ".globl sized\n.type sized, %function\nsized: nop\nret\n.size sized, .-sized\n"
    ".globl unsized\n.type unsized, %function\nunsized:\n" BRANCH "ret\n1: nop\nret\n"
    "nop\nret\n"
    ".globl last\n.type last, %function\nlast: ret\n.size last, .-last\n");
`

// TestReturnsWithoutTable checks that return instructions are found by symbols where there is no
// unwind table, and none of other functions.
func TestReturnsWithoutTable(t *testing.T) {
	branch := map[string]string{"amd64": `"jz 1f\n"`, "arm64": `"cbz x0, 1f\n"`}
	f := withoutTable(t, branch)
	text, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	starts := map[string]uint64{}
	var ranges []Range
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			starts[s.Name] = s.Value
			ranges = append(ranges, Range{Start: s.Value, End: s.Value + s.Size})
		}
	}
	if _, err := text.Returns(starts["sized"]); !errors.Is(err, ErrHidden) {
		t.Errorf("without symbols: got %v, want ErrHidden", err)
	}
	text.SetFunctions(ranges)
	for name, want := range map[string]int{"sized": 1, "unsized": 2, "last": 1} {
		exits, err := text.Returns(starts[name])
		if err != nil || len(exits) != want || exits[0].Shared {
			t.Errorf("%s: return instructions %v, want %d: %v", name, exits, want, err)
		}
	}
}

func withoutTable(t *testing.T, branch map[string]string) *elf.File {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler installed: %v", err)
	}
	machine := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}
	own, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "source.c"), filepath.Join(dir, "library.so")
	source := "#define BRANCH " + branch[machine[own.Machine]] + assembly
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(cc, "-shared", "-nostdlib", "-o", out, file).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, text)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
