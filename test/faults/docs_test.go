package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTable compares the tests that docs/faults.md names with those of this package.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Skipf("cannot read the documentation: %v", err)
	}
	rows := names(regexp.MustCompile("(?m)`(Test\\w+)` \\|$"), text)
	tests := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name := range names(regexp.MustCompile(`(?m)^func (Test\w+)\(t `), source) {
			tests[name] = true
		}
	}
	// These two check the table of workloads and docs/faults.md; they are no faults.
	delete(tests, "TestEachToolHasWorkload")
	delete(tests, "TestTable")
	for name := range tests {
		if !rows[name] {
			t.Errorf("%s has no row in docs/faults.md", name)
		}
	}
	for name := range rows {
		if !tests[name] {
			t.Errorf("docs/faults.md names %s, which does not exist", name)
		}
	}
}

func names(pattern *regexp.Regexp, in []byte) map[string]bool {
	found := map[string]bool{}
	for _, m := range pattern.FindAllSubmatch(in, -1) {
		found[string(m[1])] = true
	}
	return found
}
