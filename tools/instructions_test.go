package tools_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/corescope/corescope/tools"
)

// update rewrites the list, as `make docs` does.
var update = flag.Bool("update", false, "write instructions.txt")

const instructionsFile = "instructions.txt"

// TestInstructions compares the sizes of all programs with the committed list, so that a growing
// program is visible in its diff. It loads nothing: in the kernel a program has fewer instructions,
// because those for other kernels and options are removed.
func TestInstructions(t *testing.T) {
	got := instructions(t)
	if *update {
		if err := os.WriteFile(instructionsFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(instructionsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the objects (run `make docs`):\n%s", instructionsFile, firstDifference(got, want))
	}
}

func firstDifference(got, want []byte) string {
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("got %s\nwant %s", g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// instructions lists the programs of all tools with their number of instructions per architecture,
// including the functions that they call.
func instructions(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tPROGRAM\tAMD64\tARM64")
	for _, tl := range tools.All() {
		if tl.NoPrograms {
			continue
		}
		amd64, arm64 := sizes(t, tl.Name, "x86"), sizes(t, tl.Name, "arm64")
		for _, name := range slices.Sorted(maps.Keys(amd64)) {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", tl.Name, name, amd64[name], arm64[name])
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sizes(t *testing.T, tool, arch string) map[string]int {
	t.Helper()
	spec, err := loadObject(filepath.Join(tool, "bpf_"+arch+"_bpfel.o.gz"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for name, prog := range spec.Programs {
		out[name] = len(prog.Instructions)
	}
	return out
}
