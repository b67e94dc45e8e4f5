package stackcount

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// replacingProgram maps two libraries in turn, which the loader usually maps at the same address, and
// calls their functions: alpha_fn nine times, beta_fnc fifteen times. Both call remap_hook.
const replacingProgram = `
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) int remap_hook(int x)
{
	__asm__ volatile("");
	return x;
}

int main(int argc, char **argv)
{
	for (int i = 0; i < 6; i++) {
		void *lib = dlopen(argv[1 + i % 2], RTLD_NOW);
		int (*entry)(int (*)(int), int) = lib ? dlsym(lib, "entry") : 0;

		if (!entry) {
			puts(dlerror());
			return 1;
		}
		for (int k = 0; k < (i % 2 ? 5 : 3); k++)
			entry(remap_hook, k);
		dlclose(lib);
	}
	return 0;
}
`

// replacedLibrary is the source of a library. Its layout is the same for all names of the same length.
const replacedLibrary = `
__attribute__((noinline)) int NAME(int (*hook)(int), int x)
{
	int result = hook(x);

	__asm__ volatile("");
	return result + 1;
}

int entry(int (*hook)(int), int x)
{
	int result = NAME(hook, x);

	__asm__ volatile("");
	return result + 1;
}
`

// TestReplacedFile counts stacks of a process that maps one library after the other at the same
// address. The stacks have the same addresses, so their functions need not be named, but must not be
// named wrongly.
func TestReplacedFile(t *testing.T) {
	program := tooltest.CompileC(t, replacingProgram, "-O1", "-fno-omit-frame-pointer", "-rdynamic", "-ldl")
	library := func(name string) string {
		return tooltest.CompileC(t, strings.ReplaceAll(replacedLibrary, "NAME", name), "-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC")
	}
	first, second := library("alpha_fn"), library("beta_fnc")
	for _, unwind := range []string{"auto", "fp"} {
		res := tooltest.JSON(t, Tool, []string{"-U", "--unwind", unwind, program + ":remap_hook"}, func() {
			if out, err := exec.Command(program, first, second).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", filepath.Base(program), err, out)
			}
		})
		counts := map[string]int{}
		for _, r := range res.Rows {
			names := r.Symbols("user_stack")
			for _, name := range []string{"alpha_fn", "beta_fnc"} {
				if slices.Contains(names, name) {
					counts[name] += int(r.Num("count"))
				}
			}
			counts["all"] += int(r.Num("count"))
		}
		if counts["all"] != 24 || counts["alpha_fn"] > 9 || counts["beta_fnc"] > 15 {
			t.Errorf("--unwind %s: %v, want 24 stacks, at most 9 in alpha_fn and 15 in beta_fnc: %v", unwind, counts, res.Rows)
		}
	}
}
