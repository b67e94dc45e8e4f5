package target

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
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
