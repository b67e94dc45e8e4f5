package tools_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

func names() []string {
	var names []string
	for _, t := range tools.All() {
		names = append(names, t.Name)
	}
	return names
}

// TestFoldersAreListed checks that each directory is a tool of that name, and that they are listed
// in order.
func TestFoldersAreListed(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, file := range files {
		if folder, source := filepath.Split(file); source == filepath.Base(folder)+".go" {
			folders = append(folders, filepath.Base(folder))
		}
	}
	if !slices.Equal(folders, names()) {
		t.Errorf("All has %q, the directories are %q", names(), folders)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{"corescope": true}
	for _, tl := range tools.All() {
		for _, name := range tl.Names() {
			if seen[name] {
				t.Errorf("name %s is used twice", name)
			}
			seen[name] = true
		}
	}
}

// TestCheck checks the definitions of all tools with the objects of both architectures.
func TestCheck(t *testing.T) {
	for _, tl := range tools.All() {
		objects, err := filepath.Glob(tl.Name + "/bpf_*_bpfel.o.gz")
		want := 2
		if tl.NoPrograms {
			want = 0
			if err := tool.Check(tl); err != nil {
				t.Error(err)
			}
		}
		if err != nil || len(objects) != want {
			t.Errorf("%s has objects %q, %v, want %d", tl.Name, objects, err, want)
		}
		for _, object := range objects {
			t.Run(object, func(t *testing.T) {
				other := *tl
				other.Object = func(...tool.Variants) (*ebpf.CollectionSpec, error) { return loadObject(object) }
				if err := tool.Check(&other); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func loadObject(path string) (*ebpf.CollectionSpec, error) {
	compressed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return tool.LoadObject(compressed)
}

// TestLiveTests checks that each tool has a test that runs it: with tooltest.JSON or a variant of
// it (JSONUntil, JSONReports, JSONUndisturbed), or with tooltest.RunWakes.
func TestLiveTests(t *testing.T) {
	for _, name := range names() {
		if !isLive(t, name) {
			t.Errorf("%s has no live test: no test calls tooltest.JSON, a variant of it, or tooltest.RunWakes", name)
		}
	}
}

func isLive(t *testing.T, folder string) bool {
	t.Helper()
	tests, err := fs.Glob(os.DirFS(folder), "*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tests {
		source, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if s := string(source); strings.Contains(s, "tooltest.JSON") || strings.Contains(s, "tooltest.RunWakes(") {
			return true
		}
	}
	return false
}
