package command

import (
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/tool"
)

// TestDoctorProblems checks that tools with the same remedy are listed together, and that an error which
// is not that of all of them is not shown as if it were.
func TestDoctorProblems(t *testing.T) {
	r := &report{Tools: []*tool.Trial{
		{Name: "a", Error: "hook x", Remedy: "mount it"},
		{Name: "b", Error: "hook x", Remedy: "mount it"},
		{Name: "c", Error: "hook x", Remedy: "load it"},
		{Name: "d", Runs: true},
		{Name: "e", Error: "hook y", Remedy: "load it"},
		{Name: "f", Error: "no hook"},
	}}
	want := []string{
		"a, b: hook x\n  mount it",
		"c, e: the error of c is: hook x\n  load it",
		"f: no hook",
	}
	if got := r.problems(nil); !slices.Equal(got, want) {
		t.Errorf("problems are %q, want %q", got, want)
	}
}
