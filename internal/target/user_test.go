package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// TestFragments checks that a pattern does not select the part of a function that the compiler has moved
// elsewhere, and that its name does.
func TestFragments(t *testing.T) {
	path := tooltest.CompileC(t, `
int part(void) __asm__("probed.cold");
__attribute__((noinline)) int part(void) { __asm__ volatile(""); return 1; }
__attribute__((noinline)) int probed(void) { __asm__ volatile(""); return 2; }
int main(void) { return part() + probed() == 4; }
`)
	for name, want := range map[string][]string{"prob*": {"probed"}, "probed.cold": {"probed.cold"}} {
		_, places, err := (&Finder{}).FindText(path+":"+name, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range places {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	_, _, err := (&Finder{}).FindText(path+":net::Socket::close(int)", false)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "'*3net6Socket5close*'") {
		t.Errorf("C++ function: %v", err)
	}
}

func TestMangled(t *testing.T) {
	for name, want := range map[string]string{
		"ns::A::get": "*2ns1A3get*", "*::get*": "*3get*", "get": "", "a::*::b": "", "a::f<int>": "",
	} {
		if got := mangled(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestOffset checks that a probe is refused where no instruction begins: it would crash the program.
func TestOffset(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the test has code for amd64; instructions of arm64 have 4 bytes")
	}
	path := tooltest.CompileC(t, `
void probed(void);
__asm__(".text\n.globl probed\n.type probed, @function\nprobed:\n"
	"	movabs $0x1122334455667788, %rax\n" // 10 bytes
	"	vaddps %zmm1, %zmm2, %zmm3\n" // 6 bytes
	"	nop\n	ret\n.size probed, .-probed\n");
int main(void) { return 0; }
`)
	for offset := range uint64(20) {
		_, _, err := (&Finder{}).FindText(fmt.Sprintf("%s:probed+%d", path, offset), false)
		if want := slices.Contains([]uint64{0, 10, 16, 17}, offset); (err == nil) != want {
			t.Errorf("probed+%d: %v", offset, err)
		}
		if err != nil && !errors.Is(err, ErrWithin) {
			t.Errorf("probed+%d: %v, want ErrWithin", offset, err)
		}
	}
}

// TestReplaced checks that a notice names a process that maps a file which was at the path before, and how
// to select that file.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	library := native.Write(t, filepath.Join(dir, "libcorescopegone.so.1"), []string{"old"})
	library.Map(t)
	var notes []string
	f := &Finder{PIDs: []uint32{uint32(os.Getpid())}, Note: func(note string) { notes = append(notes, note) }}
	if _, _, err := f.FindText(library.Path+":old", false); err != nil || len(notes) > 0 {
		t.Errorf("mapped file: %v, notes %q, want none", err, notes)
	}
	if err := os.Remove(library.Path); err != nil {
		t.Fatal(err)
	}
	native.Write(t, library.Path, []string{"new"})
	if _, _, err := f.FindText(library.Path+":new", false); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], fmt.Sprintf("process %d does not map %s", os.Getpid(), library.Path)) ||
		!strings.Contains(notes[0], "use the name corescopegone to") {
		t.Errorf("replaced file: notes %q", notes)
	}
	if _, places, err := f.FindText("corescopegone:*", false); err != nil || len(places) != 1 || places[0].Name != "old" {
		t.Errorf("name of the library selects %v, %v, want the mapped file", places, err)
	}
	if got := shortName("/x/program.solid"); got != "program.solid" {
		t.Errorf("name of a program: %s", got)
	}
}
