package tools_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/tools"
)

// TestObjects checks that the table has a complete line for each tool with a BPF object, and no others.
func TestObjects(t *testing.T) {
	var want []string
	paths, err := filepath.Glob("*/bpf_x86_bpfel.o.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		want = append(want, filepath.Dir(path))
	}
	slices.Sort(want)
	line := regexp.MustCompile(`^([a-z_0-9-]+)\t[^\t]*clang version [^\t]+\t[^\t]+\t[0-9a-f]{64}$`)
	var got []string
	for text := range strings.Lines(tools.Objects) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			t.Fatalf("objects.txt: wrong line %q", text)
		}
		got = append(got, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("objects.txt has\n%v\nwant\n%v (run go generate for the tools that differ)", got, want)
	}
}

// TestObjectsToolchain checks that the table names the versions that generated files are made with.
func TestObjectsToolchain(t *testing.T) {
	text, err := os.ReadFile("../scripts/toolchain.version")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	_, libbpf, _ := strings.Cut(lines[1], "\t")
	for text := range strings.Lines(tools.Objects) {
		if cells := strings.Split(text, "\t"); cells[1] != lines[0] || cells[2] != libbpf {
			t.Errorf("%s: built by %q with libbpf %s, want those of scripts/toolchain.version", cells[0], cells[1], cells[2])
		}
	}
}
