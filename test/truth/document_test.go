package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocument checks that a run of some tools replaces their lines, and keeps those of the others.
func TestDocument(t *testing.T) {
	first := []result{
		{comparison: comparison{tool: "opensnoop", program: "p", reference: "r"}, figures: []figure{{"opens", 3, 3, 0, ""}}},
		{comparison: comparison{tool: "syscount", program: "p", reference: "r"}, figures: []figure{{"invocations", 7, 8, 1, "why"}}},
		{comparison: comparison{tool: "execsnoop", program: "p", reference: "r"}, err: fmt.Errorf("%w: no strace", errMissing)},
	}
	old, err := document("../..", nil, first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := document("../..", old, []result{
		{comparison: first[1].comparison, err: errors.New("broken")},
		{comparison: first[2].comparison, figures: []figure{{"execs", 2, 2, 0, ""}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| opensnoop | `p` | opens | `r` | 3 | 3 | equal |", "| execsnoop | `p` | execs |", "| syscount | `p` | `r` | FAILED: broken |"} {
		if !strings.Contains(string(again), want) {
			t.Errorf("no %q in\n%s", want, again)
		}
	}
	for _, gone := range []string{"invocations", "no strace"} {
		if strings.Contains(string(again), gone) {
			t.Errorf("%q is left", gone)
		}
	}
}

func TestNotIn(t *testing.T) {
	reference := []string{"a", "b", "b", "c"}
	for _, c := range []struct {
		packets []string
		want    float64
	}{
		{[]string{"a", "b", "b", "c"}, 0},
		{[]string{"b", "a", "c", "b"}, 0},
		{[]string{"a", "b", "c", "c"}, 1},
		{[]string{"b", "b", "b", "d"}, 2},
	} {
		if got := notIn(c.packets, reference); got != c.want {
			t.Errorf("notIn(%v) = %v, want %v", c.packets, got, c.want)
		}
	}
}

// TestEveryTool checks that the page has a line for each tool.
func TestEveryTool(t *testing.T) {
	named := map[string]bool{}
	for _, c := range comparisons() {
		named[c.tool] = true
	}
	for _, e := range elsewheres() {
		named[e.tool] = true
	}
	files, err := filepath.Glob("../../tools/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of tools, %v", len(files), err)
	}
	for _, file := range files {
		if tool := filepath.Base(filepath.Dir(file)); filepath.Base(file) == tool+".go" && !named[tool] {
			t.Errorf("%s has no comparison", tool)
		}
	}
}
