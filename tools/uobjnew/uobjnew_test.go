package uobjnew

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

func on(f func()) func() {
	return func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}
}

// TestTypes creates objects of each type: i+1 of the i-th.
func TestTypes(t *testing.T) {
	type create struct {
		probe string
		args  [7]uint64
		// want is the type, with the bytes and elements of each object, "-" if absent.
		want string
	}
	text := languagetest.Name
	for language, all := range map[string][]create{
		"java": {
			{"hotspot:object__alloc", [7]uint64{1, text("a/Foo and more"), 5, 24}, "a/Foo 24 -"},
			{"hotspot:object__alloc", [7]uint64{1, text("[B"), 2, 1 << 33}, "[B 8589934592 -"},
		},
		"ruby": {
			{"ruby:object__create", [7]uint64{text("Foo"), text("a.rb"), 3}, "Foo - -"},
			{"ruby:string__create", [7]uint64{11}, "String 11 -"}, {"ruby:array__create", [7]uint64{12}, "Array - 12"},
			{"ruby:hash__create", [7]uint64{13}, "Hash - 13"}, {"ruby:symbol__create", [7]uint64{text("sym")}, "Symbol - -"},
		},
		"tcl": {{"tcl:obj__create", [7]uint64{1}, "Tcl_Obj - -"}},
	} {
		t.Run(language, func(t *testing.T) {
			var probes []string
			for _, c := range all {
				if len(probes) == 0 || probes[len(probes)-1] != c.probe {
					probes = append(probes, c.probe)
				}
			}
			lib := languagetest.Open(t, language, probes...)
			res := tooltest.JSON(t, Tool, self("-l", language), on(func() {
				for i, c := range all {
					for range i + 1 {
						lib.Call(c.probe, native.Call{Args: c.args})
					}
				}
			}))
			got := map[string]float64{}
			for _, r := range res.Rows {
				part := func(key string) string {
					if !r.Has(key) {
						return "-"
					}
					return fmt.Sprintf("%.0f", r.Num(key)/r.Num("count"))
				}
				got[r.Str("object_type")+" "+part("bytes")+" "+part("elements")] = r.Num("count")
			}
			for i, c := range all {
				if got[c.want] != float64(i+1) {
					t.Errorf("%v objects %q, want %d", got[c.want], c.want, i+1)
				}
			}
			if len(res.Rows) != len(all) {
				t.Errorf("rows %v, want %d", res.Rows, len(all))
			}
		})
	}
}

// TestBlocks calls malloc, which is also found without -l, with limits and in text.
func TestBlocks(t *testing.T) {
	lib := native.Open(t, "libc.so.6", []string{"malloc"})
	load := on(func() {
		for _, size := range []uint64{64, 64, 64, 1 << 40} {
			lib.Call("malloc", native.Call{Args: [7]uint64{size}})
		}
	})
	for _, args := range [][]string{nil, {"-l", "c", "--top-size", "1"}, {"--top-count", "1"}} {
		res := tooltest.JSON(t, Tool, self(args...), load)
		isFrequent := len(args) == 2
		first := res.Rows[0]
		if len(res.Rows) != 2 && len(args) == 0 || len(res.Rows) != 1 && len(args) > 0 {
			t.Errorf("%q: rows %v", args, res.Rows)
		}
		if isFrequent && (first.Num("count") != 3 || first.Num("bytes") != 192) || !isFrequent && (first.Num("count") != 1 || first.Num("block_bytes") != 1<<40) {
			t.Errorf("%q: first row %v", args, first)
		}
	}
	out := tooltest.Text(t, Tool, self(), load)
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[1]), " ") != "NAME/TYPE # ALLOCS # BYTES" || strings.Join(strings.Fields(lines[3]), " ") != "block size 64 3 192" {
		t.Errorf("text is %q", out)
	}
}

// TestMalloc compares with a program of the C library.
func TestMalloc(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("there is no C compiler: %v", err)
	}
	dir := t.TempDir()
	source := `
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
	void *volatile block;

	setvbuf(stdout, NULL, _IONBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	getchar();
	for (int i = 0; i < 500; i++)
		block = malloc(12345);
	return 0;
}`
	if err := os.WriteFile(dir+"/m.c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O0", "-o", dir+"/m", dir+"/m.c").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, out)
	}
	res, _ := languagetest.Run(t, Tool, nil, dir+"/m")
	if len(res.Rows) != 1 || res.Rows[0].Num("count") != 500 || res.Rows[0].Num("bytes") != 500*12345 || res.Rows[0].Str("comm") != "m" {
		t.Errorf("rows %v, want 500 blocks of 12345 bytes", res.Rows)
	}
}
