package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/test/kernels/plan"
	"github.com/corescope/corescope/tools"
)

// told is the report of a kernel that has the ways "btf" (taken) and "raw", not "tp".
func told(checks ...plan.Check) *report {
	return &report{kernel: kernel{name: "k"}, tools: map[string]*result{"t": {
		Checks: checks,
		Ways: []plan.Way{
			{Hook: "h", Kind: "btf", Result: "taken", Taken: true},
			{Hook: "h", Kind: "raw", Result: "works"},
			{Hook: "h", Kind: "tp", Result: "not in this kernel"},
			{Hook: "h", Kind: "bad", Result: "refused by the verifier: why"},
		},
	}}}
}

func TestCell(t *testing.T) {
	good := plan.Check{Tool: "t", Passed: 1}
	bad := plan.Check{Tool: "t", Passed: 1, Failed: []plan.Test{{Name: "T"}}}
	raw := plan.Check{Tool: "t", Hook: "h", Kind: "raw", Passed: 1}
	none := plan.Check{Tool: "t", Skipped: []plan.Test{{Name: "T"}}}
	for _, tt := range []struct {
		name   string
		report *report
		way    way
		want   string
	}{
		{"taken", told(good), way{kind: "btf"}, passed},
		{"a test failed", told(bad), way{kind: "btf"}, "FAIL"},
		{"all tests skipped", told(none), way{kind: "btf"}, "FAIL"},
		{"forced", told(good, raw), way{kind: "raw"}, passed},
		{"only the taken one ran", told(good), way{kind: "raw"}, "not run"},
		{"only the ring buffer ran", told(good), way{kind: "btf", perf: true}, "not run"},
		{"missing", told(good), way{kind: "tp"}, "not in this kernel"},
		{"refused", told(good), way{kind: "bad"}, "FAIL: refused"},
		{"unknown", told(good), way{kind: "other"}, "not tried"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.way.tool, tt.way.hook = "t", "h"
			if got := tt.report.cell(&tt.way); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A way must pass on one kernel of all.
func TestNever(t *testing.T) {
	btf, raw := way{tool: "t", hook: "h", kind: "btf"}, way{tool: "t", hook: "h", kind: "raw"}
	reports := []*report{
		told(plan.Check{Tool: "t", Error: "timeout", Passed: 1}),
		told(plan.Check{Tool: "t", Passed: 1}),
	}
	if got := never(reports, []way{btf, raw}); !slices.Equal(got, []way{raw}) {
		t.Errorf("got %v", got)
	}
}

// What a machine tells is a result of each tool, whole or not, and is kept.
func TestTake(t *testing.T) {
	r := &report{kernel: kernel{name: "k"}, commit: "c", tools: map[string]*result{}}
	good := plan.Check{Tool: "a", Passed: 1, Skipped: []plan.Test{{Name: "T", Output: "x_test.go:1: why"}}}
	for _, m := range []plan.Message{
		{Type: plan.Boot, Release: "1.2"},
		{Type: plan.Ways, Tool: "a", Ways: []plan.Way{{Hook: "h"}}},
		{Type: plan.Done, Check: &good},
		{Type: plan.Tested, Tool: "a"},
		{Type: plan.Ways, Tool: "b", Error: "no ways"},
		{Type: plan.Tested, Tool: "b"},
		{Type: plan.Ways, Tool: "c"},
	} {
		r.take(m)
	}
	for tool, want := range map[string]string{"a": "", "b": "no ways", "c": cutShort, "d": ""} {
		if got := r.of(tool).Error; got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}
	h := &house{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(h.dir, "k"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.keep(r); err != nil {
		t.Fatal(err)
	}
	if got, err := h.load("k", "a"); err != nil || !reflect.DeepEqual(got, r.of("a")) || got.Commit != "c" || got.Release != "1.2" {
		t.Errorf("kept %v, %v", got, err)
	}
	if _, err := h.load("k", "d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was kept: %v", err)
	}
}

// The document has a row for each kernel's release and commit, and no holes.
func TestDocument(t *testing.T) {
	all := tools.All()[:1]
	name := all[0].Name
	r := &report{kernel: matrix[0], tools: map[string]*result{name: {
		Release: "1.2.3", Commit: "abcdef", Checks: []plan.Check{{Tool: name, Failed: []plan.Test{{Name: "TestX", Output: "bad"}}}},
	}}}
	text, err := document([]*report{r}, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| kernel |  |  |  | 1.2.3 |", "| commit |  |  |  | abcdef |", "| " + name + " | FAILS", "TestX: bad"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the document:\n%s", want, text)
		}
	}
	if !isWhole(text, name) || isWhole(text, "other") {
		t.Errorf("%s is all that the document has:\n%s", name, text)
	}
	text, err = document([]*report{r, {kernel: matrix[1]}}, all)
	if err != nil || isWhole(text, name) {
		t.Errorf("one of two kernels is whole, %v:\n%s", err, text)
	}
}

func TestExitCode(t *testing.T) {
	none := program{"no-such-command", "no-such-package"}
	t.Setenv("PATH", t.TempDir())
	err := none.install(t.Context())
	if got := exitCode(err); got != 3 {
		t.Errorf("nothing can be installed: %d, %v", got, err)
	}
	if got := exitCode(errFailed); got != 1 {
		t.Errorf("a check has failed: %d", got)
	}
}

func TestReason(t *testing.T) {
	for output, want := range map[string]string{
		"    x_test.go:12: no hierarchy":            "no hierarchy",
		"a log line\nx_test.go:3: read /x: no file": "read /x: no file",
		"": "",
	} {
		if got := reason(output); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}

// Each program of a tool's objects is a row of the tables.
func TestWaysOfAllTools(t *testing.T) {
	all := tools.All()
	for _, tl := range all {
		ways, err := waysOf(tl)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		if len(ways) == 0 && len(facts.Iterators) == 0 {
			t.Errorf("%s has no way", tl.Name)
		}
	}
	for _, s := range suites {
		if tests, err := filepath.Glob("../../" + folderOf(s) + "/*_test.go"); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests in %s: %v", s.Name, folderOf(s), err)
		}
	}
	for name := range toolNeeds {
		if !slices.ContainsFunc(append(all, suites...), func(tl *tool.Tool) bool { return tl.Name == name }) {
			t.Errorf("there is no tool %s, but what it needs", name)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Setenv("KERNELS", "7.2 5.10")
	kernels, _, whole, err := chosen()
	if err != nil || whole || len(kernels) != 2 || kernels[0].name != "5.10" {
		t.Errorf("%v, whole %v: %v", kernels, whole, err)
	}
	t.Setenv("KERNELS", "4.19")
	if _, _, _, err := chosen(); err == nil {
		t.Error("a kernel that is not in the matrix")
	}
}

func TestArchive(t *testing.T) {
	a := newArchive()
	a.add("a/b", 0o644, []byte("text"))
	path := filepath.Join(t.TempDir(), "initrd")
	if err := a.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Each header of 110 bytes and its name are filled up to four bytes, data too.
	const dir, file, text, end = 112, 116, 4, 124
	if len(b) != dir+file+text+end || string(b[dir+file:][:text]) != "text" || string(b[dir:][:6]) != "070701" {
		t.Errorf("%d bytes: %q", len(b), b)
	}
}
