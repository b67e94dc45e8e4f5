package stack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

const linkageProgram = `
#include <stdlib.h>
#include <string.h>
void *(*function)(size_t) = malloc;
int compare(const void *a, const void *b) { return strcmp(a, b); }
int main(int argc, char **argv) { qsort(argv, argc, 8, compare); free(function(argc)); return !getenv(argv[0]); }
`

// TestLinkage compares names of PLT entries with those of objdump.
func TestLinkage(t *testing.T) {
	need(t, "gcc")
	need(t, "objdump")
	dir := t.TempDir()
	source := filepath.Join(dir, "linkage.c")
	if err := os.WriteFile(source, []byte(linkageProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-Wl,-z,lazy"}, {"-Wl,-z,now"}, {"-Wl,-z,lazy", "-fcf-protection"}, {"-shared", "-fPIC"}} {
		if runtime.GOARCH != "amd64" && flags[len(flags)-1] == "-fcf-protection" {
			continue
		}
		file := filepath.Join(dir, "linkage")
		run(t, "gcc", append([]string{"-O1", "-o", file, source}, flags...)...)
		out, err := exec.Command("objdump", "-d", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		s := loadSymbols(t, file)
		found := 0
		for _, m := range regexp.MustCompile(`(?m)^([0-9a-f]+) <(\w+@plt)>:$`).FindAllSubmatch(out, -1) {
			address, err := strconv.ParseUint(string(m[1]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			found++
			for _, at := range []uint64{address, address + 7} {
				if got := s.at(at, place{}); got != string(m[2]) {
					t.Errorf("%v: %#x is %q, want %s", flags, at, got, m[2])
				}
			}
		}
		if found < 3 {
			t.Errorf("%v: objdump has %d entries, want at least 3: %s", flags, found, bytes.TrimSpace(out))
		}
	}
}

// TestLinkageARM64 decodes the instructions of an arm64 PLT entry.
func TestLinkageARM64(t *testing.T) {
	code := []byte{0x10, 0x01, 0x00, 0xb0, 0x11, 0xfe, 0x47, 0xf9} // adrp x16, 0x21000; ldr x17, [x16, 4088]
	if got, ok := pltSlotARM64(code, 0x5f0); !ok || got != 0x21000+4088 {
		t.Errorf("got %#x, %v", got, ok)
	}
	code = []byte{0xf0, 0xff, 0xff, 0x90, 0x11, 0x06, 0x40, 0xf9} // adrp x16, -4 pages; ldr x17, [x16, 8]
	if got, ok := pltSlotARM64(code, 0x10ff8); !ok || got != 0xc008 {
		t.Errorf("got %#x, %v", got, ok)
	}
}
