package tool

import (
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

func TestCheckGood(t *testing.T) {
	if err := Check(newFake().tool()); err != nil {
		t.Error(err)
	}
}

// TestCheckFaults checks that each fault causes exactly one error.
func TestCheckFaults(t *testing.T) {
	for _, tc := range []struct {
		want  string
		spoil func(*fake)
	}{
		{`name "Fake" must consist`, func(f *fake) { f.spec.Also = []Alias{{Name: "Fake"}} }},
		{`alias bogus: usage: unknown flag: --nosuch`, func(f *fake) { f.spec.Also = []Alias{{"bogus", []string{"--nosuch"}}} }},
		{"missing category", func(f *fake) { f.spec.Category = "" }},
		{"missing description", func(f *fake) { f.spec.Description = "" }},
		{"one line without a full stop", func(f *fake) { f.spec.Summary = "Show." }},
		{"missing examples", func(f *fake) { f.spec.Examples = nil }},
		{"flag failed has no help", func(f *fake) {
			f.options = &struct {
				Failed bool   `flag:"failed,x"`
				Every  uint64 `pos:"interval" min:"1" help:"seconds"`
				Count  uint64 `pos:"count" help:"times"`
			}{}
		}},
		{"flag interval has no help", func(f *fake) {
			f.options = &struct {
				Failed bool   `flag:"failed,x" help:"failures"`
				Every  uint64 `pos:"interval" min:"1"`
				Count  uint64 `pos:"count" help:"times"`
			}{}
		}},
		{"flag --Fast must consist of lowercase letters", func(f *fake) {
			f.options = &struct {
				FakeOptions
				Fast bool `flag:"Fast" help:"faster"`
			}{}
		}},
		{"-v is defined twice", func(f *fake) { f.spec.Shorts = map[string]string{"limit": "v"} }},
		{"has no variable targ_failed", func(f *fake) { f.variables = f.variables[1:] }},
		{"has no variable want_note", func(f *fake) { f.variables = f.variables[:1] }},
		{"has no variable task_filter", func(f *fake) { f.spec.Tasks = true }},
		{"column comm has no help", func(f *fake) {
			f.row = &struct {
				Time uint64 `json:"time" help:"when"`
				Comm string `json:"comm"`
			}{}
		}},
		{"column comm is defined twice", func(f *fake) {
			f.shows = output.KindHistogram
			f.keys, _ = column.Of(&struct {
				Comm string `json:"comm" help:"whose"`
			}{})
			f.labels = f.keys
		}},
		{"column took does not end with its unit, ns", func(f *fake) {
			f.row = &struct {
				fakeRow
				Took value.Nanoseconds `json:"took" help:"how long"`
			}{}
		}},
		{`column "path": no such column`, func(f *fake) { f.text = []string{"path"} }},
		{"has no programs", func(f *fake) { f.programs = nil }},
		{"program open__btf is in section raw_tp/sys_exit", func(f *fake) { f.programs["open__btf"] = "raw_tp/sys_exit" }},
		{"has no hook close", func(f *fake) { f.Optional = []string{"close"} }},
		{"has no hook close", func(f *fake) { f.Without = []string{"close"} }},
		{"does not start with fake", func(f *fake) { f.spec.Examples = []string{"opensnoop # all"} }},
		{"missing its purpose", func(f *fake) { f.spec.Examples = []string{"fake"} }},
		{"unknown flag: --what", func(f *fake) { f.spec.Examples = []string{"fake --what # all"} }},
		{"unexpected argument", func(f *fake) { f.spec.Examples = []string{"fake 1 2 3 # all"} }},
		{`column "pid": no such column`, func(f *fake) { f.spec.Examples = []string{"fake --columns +pid # all"} }},
		{"compile filter", func(f *fake) { f.spec.Examples = []string{"fake --filter 'pid > 1' # all"} }},
	} {
		f := newFake()
		tc.spoil(f)
		err := Check(f.tool())
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(strings.Split(err.Error(), "\n ")[0], "\n") {
			t.Errorf("got %v, want one fault: %s", err, tc.want)
		}
	}
}
