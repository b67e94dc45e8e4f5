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
