package tools_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/corescope/corescope/tools"
)

// TestAccessedMapsAreTagged checks that maps that user space accesses by name have the tag with
// which they are created first (bpf/map.bpf.h).
func TestAccessedMapsAreTagged(t *testing.T) {
	access := regexp.MustCompile(`(?:Maps\[|Counts\(|[^.]Map: )"(\w+)"`)
	accessed := map[string]bool{}
	for _, pkg := range []string{"tool", "source", "stacktrace", "probe"} {
		files, err := filepath.Glob("../internal/" + pkg + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range access.FindAllSubmatch(source, -1) {
				accessed[string(m[1])] = true
			}
		}
	}
	if !accessed["events"] || !accessed["lost"] || !accessed["table"] {
		t.Fatalf("accessed maps are %v", accessed)
	}
	for _, tl := range tools.All() {
		spec, err := tl.Object()
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range spec.Maps {
			if accessed[name] && !slices.Contains(m.Tags, "user_space") {
				t.Errorf("%s: map %s has no USER_SPACE", tl.Name, name)
			}
		}
	}
}
