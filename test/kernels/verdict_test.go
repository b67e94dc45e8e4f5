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

// reportOf returns the report of a kernel with attach types "btf" (selected) and "raw", without
// "tp".
func reportOf(checks ...plan.Check) *report {
	return &report{kernel: kernel{name: "k"}, tools: map[string]*result{"t": {
		Checks: checks,
		Variants: []plan.Variant{
			{Hook: "h", Kind: "btf", Result: "used", Taken: true},
			{Hook: "h", Kind: "raw", Result: "works"},
			{Hook: "h", Kind: "tp", Result: "not supported by this kernel"},
			{Hook: "h", Kind: "bad", Result: "refused by the verifier: why"},
		},
	}}}
}

// A run that is stopped keeps the results of the tools whose checks have ended.
func TestKeepFinished(t *testing.T) {
	t.Setenv("SHORT", "")
	h := &runner{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(h.dir, "k"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := reportOf(plan.Check{Tool: "t", Passed: 1})
	r.tools["ended"] = &result{Error: endedEarly}
	if err := h.keepFinished(r); err != nil {
		t.Fatal(err)
	}
	if found, err := h.load("k", "t"); err != nil || !reflect.DeepEqual(found, r.tools["t"]) {
		t.Errorf("result of the finished tool: %+v, %v", found, err)
	}
	if _, err := h.load("k", "ended"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("result of the other tool: %v", err)
	}
}

func TestCell(t *testing.T) {
	good := plan.Check{Tool: "t", Passed: 1}
	bad := plan.Check{Tool: "t", Passed: 1, Failed: []plan.Test{{Name: "T"}}}
	raw := plan.Check{Tool: "t", Hook: "h", Kind: "raw", Passed: 1}
	none := plan.Check{Tool: "t", Skipped: []plan.Test{{Name: "T"}}}
	for _, tt := range []struct {
		name    string
		report  *report
		variant variant
		want    string
	}{
		{"default", reportOf(good), variant{kind: "btf"}, passed},
		{"a test failed", reportOf(bad), variant{kind: "btf"}, "FAIL"},
		{"all tests skipped", reportOf(none), variant{kind: "btf"}, "FAIL"},
		{"forced", reportOf(good, raw), variant{kind: "raw"}, passed},
		{"only the default ran", reportOf(good), variant{kind: "raw"}, "not run"},
		{"only the ring buffer ran", reportOf(good), variant{kind: "btf", perf: true}, "not run"},
		{"missing", reportOf(good), variant{kind: "tp"}, "not supported by this kernel"},
		{"refused", reportOf(good), variant{kind: "bad"}, "FAIL: refused"},
		{"unknown", reportOf(good), variant{kind: "other"}, "not tried"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.variant.tool, tt.variant.hook = "t", "h"
			if got := tt.report.cell(&tt.variant); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A tool works only if a check of it ran and, if it has programs, the kernel supports one of its hooks.
func TestToolCell(t *testing.T) {
	for want, found := range map[string]*result{
		"works":   {Checks: []plan.Check{{Tool: "t", Passed: 1}}},
		"FAILS":   {Checks: []plan.Check{{Tool: "t", Failed: []plan.Test{{Name: "T"}}}}},
		"not run": {},
		"not supported: h attach point does not exist": {
			Checks:   []plan.Check{{Tool: "t", Passed: 1}},
			Variants: []plan.Variant{{Hook: "h", Kind: "btf", Result: "attach point does not exist"}},
		},
		"works: h btf, i attach point does not exist": {
			Checks: []plan.Check{{Tool: "t", Passed: 1}},
			Variants: []plan.Variant{
				{Hook: "h", Kind: "btf", Result: "used", Taken: true},
				{Hook: "i", Kind: "btf", Result: "attach point does not exist"},
			},
		},
		"not supported by this kernel: why": {Lacks: "t: not supported by this kernel: why\n"},
	} {
		r := &report{tools: map[string]*result{"t": found}}
		if got := r.toolCell("t"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An attach type must pass on at least one kernel.
func TestNever(t *testing.T) {
	btf, raw := variant{tool: "t", hook: "h", kind: "btf"}, variant{tool: "t", hook: "h", kind: "raw"}
	reports := []*report{
		reportOf(plan.Check{Tool: "t", Error: "timeout", Passed: 1}),
		reportOf(plan.Check{Tool: "t", Passed: 1}),
	}
	if got := never(reports, []variant{btf, raw}); !slices.Equal(got, []variant{raw}) {
		t.Errorf("got %v", got)
	}
}

// The messages of a machine are recorded as results of each tool, complete or not, and stored.
func TestRecord(t *testing.T) {
	r := &report{kernel: kernel{name: "k"}, commit: "c", tools: map[string]*result{}}
	good := plan.Check{Tool: "a", Passed: 1, Skipped: []plan.Test{{Name: "T", Output: "x_test.go:1: why"}}}
	for _, m := range []plan.Message{
		{Type: plan.Boot, Release: "1.2"},
		{Type: plan.Explained, Tool: "a", Variants: []plan.Variant{{Hook: "h"}}},
		{Type: plan.Done, Check: &good},
		{Type: plan.Tested, Tool: "a"},
		{Type: plan.Explained, Tool: "b", Error: "no variants"},
		{Type: plan.Tested, Tool: "b"},
		{Type: plan.Explained, Tool: "c"},
	} {
		r.record(m)
	}
	for tool, want := range map[string]string{"a": "", "b": "no variants", "c": endedEarly, "d": ""} {
		if got := r.resultOf(tool).Error; got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}
	h := &runner{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(h.dir, "k"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.keep(r); err != nil {
		t.Fatal(err)
	}
	if got, err := h.load("k", "a"); err != nil || !reflect.DeepEqual(got, r.resultOf("a")) || got.Commit != "c" || got.Release != "1.2" {
		t.Errorf("stored %v, %v", got, err)
	}
	if _, err := h.load("k", "d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want ErrNotExist", err)
	}
}

// The document has a row with the release and the commit of each kernel. It keeps what it has of tools
// that a run does not test.
func TestDocument(t *testing.T) {
	tl := tools.All()[0]
	r := &report{kernel: matrix[0], tools: map[string]*result{tl.Name: {
		Release: "1.2.3", Commit: "abcdef", Checks: []plan.Check{{
			Tool: tl.Name, Failed: []plan.Test{{Name: "TestX", Output: "bad"}}, Skipped: []plan.Test{{Name: "TestY", Output: "x_test.go:1: none"}},
		}},
	}}}
	e, err := newEntry([]*report{r}, tl)
	if err != nil {
		t.Fatal(err)
	}
	text := string(document([]*report{r}, []entry{e, {tool: "untested"}}))
	for _, want := range []string{"| kernel |  |  |  | 1.2.3 |", "| commit |  |  |  | abcdef |", "| " + tl.Name + " | FAILS", "TestX: bad", "| TestY | 5.10 | none |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	if !e.isWhole() || strings.Contains(text, "untested") {
		t.Errorf("the document should be complete for %s only:\n%s", tl.Name, text)
	}
	if old := oldEntry(text, tl.Name); old != e {
		t.Errorf("entry %+v, read as %+v", e, old)
	}
	if old := oldEntry(text, "untested"); old != (entry{tool: "untested"}) {
		t.Errorf("entry of an untested tool: %+v", old)
	}
	both := []*report{r, {kernel: matrix[1]}}
	some, err := newEntry(both, tl)
	if err != nil || some.isWhole() {
		t.Errorf("complete with one of two kernels, %v: %+v", err, some)
	}
	if kept, err := update(e, both, tl); err != nil || kept != e {
		t.Errorf("results of all kernels were replaced, %v: %+v", err, kept)
	}
}

func TestExitCode(t *testing.T) {
	none := program{"no-such-command", "no-such-package"}
	t.Setenv("PATH", t.TempDir())
	err := none.install(t.Context())
	if got := exitCode(err); got != 3 {
		t.Errorf("exit code %d for %v, want 3", got, err)
	}
	if got := exitCode(errFailed); got != 1 {
		t.Errorf("exit code %d for a failed check, want 1", got)
	}
}

// The error of a run names the tool and the kernel of each failure.
func TestConclude(t *testing.T) {
	all := tools.All()[:2]
	failed := func(n int) *result {
		check := plan.Check{Tool: all[n].Name, Failed: []plan.Test{{Name: "TestX", Output: "bad"}}}
		return &result{Checks: []plan.Check{check, check}}
	}
	reports := []*report{
		{kernel: kernel{name: "5.10"}, tools: map[string]*result{all[0].Name: failed(0)}},
		{kernel: kernel{name: "7.2"}, tools: map[string]*result{}, err: errors.New("no boot")},
	}
	err := conclude(reports, all, false)
	want := errFailed.Error() + ": " + all[0].Name + " on 5.10, machine 7.2"
	if !errors.Is(err, errFailed) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
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

// Each program of a tool's object is a row of the tables.
func TestAttachTypesOfAllTools(t *testing.T) {
	all := tools.All()
	for _, tl := range all {
		variants, err := variantsOf(tl)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		if len(variants) == 0 && len(facts.Iterators) == 0 && !tl.NoPrograms {
			t.Errorf("%s has no attach type", tl.Name)
		}
	}
	for _, s := range suites {
		if tests, err := filepath.Glob("../../" + folderOf(s) + "/*_test.go"); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests in %s: %v", s.Name, folderOf(s), err)
		}
	}
	for name := range toolNeeds {
		if !slices.ContainsFunc(append(all, suites...), func(tl *tool.Tool) bool { return tl.Name == name }) {
			t.Errorf("toolNeeds has an entry for unknown tool %s", name)
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
		t.Error("an unknown kernel name was accepted")
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
