package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTable compares the tests that docs/faults.md names, and the tools that it says they run, with
// those of this package.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Skipf("cannot read the documentation: %v", err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)\\| ([^|]*) \\| `(Test\\w+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		rows[m[2]] += m[1] + "; "
	}
	tests := bodies(t)
	// These check the table of workloads, docs/faults.md and the representatives; they are no faults.
	delete(tests, "TestEachToolHasWorkload")
	delete(tests, "TestTable")
	delete(tests, "TestRepresentatives")
	for name, body := range tests {
		if rows[name] == "" {
			t.Errorf("%s has no row in docs/faults.md", name)
			continue
		}
		for word, calls := range map[string]string{
			"all": `tools\.All\(|oneByOne\(|sending\(`, "representatives": `representatives\(`, "own start": `ownStart\(`,
		} {
			does := regexp.MustCompile(calls).MatchString(body)
			if strings.Contains(rows[name], word) != does {
				t.Errorf("docs/faults.md says that %s runs these tools: %s want %q in it: %v", name, rows[name], word, does)
			}
		}
	}
	for name := range rows {
		if tests[name] == "" {
			t.Errorf("docs/faults.md names %s, which does not exist", name)
		}
	}
}

// bodies returns the source of each test of this package.
func bodies(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?ms)^func (Test\w+)\(t .*?^}$`).FindAllStringSubmatch(string(source), -1) {
			all[m[1]] = m[0]
		}
	}
	return all
}
