package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMutantsApply checks that each change finds its text, and that there are enough of them.
func TestMutantsApply(t *testing.T) {
	const least = 100
	all := mutants()
	if len(all) < least {
		t.Errorf("%d mutants, want at least %d", len(all), least)
	}
	for _, m := range all {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Errorf("%s: %s: %v", m.tool, m.fault, err)
			continue
		}
		if changed, err := m.apply(string(text)); err != nil || changed == string(text) {
			t.Errorf("%s: %s: %v", m.tool, m.fault, err)
		}
	}
}

// TestResults checks that a second run continues the first one.
func TestResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	all := mutants()
	first, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.add(all[0], notDetected+"proved"); err != nil {
		t.Fatal(err)
	}
	second, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := second.of(all[0]); got != notDetected+"proved" {
		t.Errorf("result %q", got)
	}
	if got := second.of(all[1]); got != "" {
		t.Errorf("result %q of a mutant that was not tested", got)
	}
}

// TestUnique checks that tool and fault name a mutant, as results do.
func TestUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutants() {
		if seen[m.tool+m.fault] {
			t.Errorf("%s has several mutants: %s", m.tool, m.fault)
		}
		seen[m.tool+m.fault] = true
	}
}

func TestScore(t *testing.T) {
	var s score
	for _, r := range []string{"contradicted rows", notDetected + "proved", notBuilt + "x", excluded + "x", "contradicted pid"} {
		s.add(r)
	}
	if want := (score{detected: 2, missed: 1, unbuilt: 1, excluded: 1}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}
