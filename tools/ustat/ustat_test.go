package ustat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// TestLanguages hits the i-th probe of each language i+1 times.
func TestLanguages(t *testing.T) {
	for language, probes := range map[string][]string{
		"java": {
			"methods hotspot:method__entry", "collections hotspot:gc__begin", "objects hotspot:object__alloc",
			"loads hotspot:class__loaded", "threads hotspot:thread__start",
		},
		"perl":   {"methods perl:sub__entry"},
		"php":    {"methods php:function__entry", "loads php:compile__file__entry", "exceptions php:exception__thrown"},
		"python": {"methods python:function__return", "collections python:gc__start", "loads python:import__find__load__start"},
		"ruby": {
			"methods ruby:method__entry", "methods ruby:cmethod__entry", "collections ruby:gc__mark__begin", "objects ruby:object__create",
			"objects ruby:string__create", "objects ruby:array__create", "objects ruby:hash__create", "loads ruby:require__entry",
			"loads ruby:load__entry", "exceptions ruby:raise",
		},
		"tcl": {"methods tcl:proc__entry", "objects tcl:obj__create"},
	} {
		t.Run(language, func(t *testing.T) {
			want := map[string]float64{}
			var names []string
			for i, p := range probes {
				column, probe, _ := strings.Cut(p, " ")
				want[column] += float64(i + 1)
				names = append(names, probe)
			}
			lib := languagetest.Open(t, language, names...)
			res := tooltest.JSON(t, Tool, self("-l", language, "60"), func() {
				for i, probe := range names {
					for range i + 1 {
						lib.Call(probe, native.Call{})
					}
				}
			})
			if len(res.Rows) != 1 || res.Rows[0].Str("language") != language || !strings.HasPrefix(res.Rows[0].Str("command"), os.Args[0][:min(len(os.Args[0]), 20)]) {
				t.Fatalf("rows %v, want one of %s", res.Rows, language)
			}
			r := res.Rows[0]
			for _, column := range []string{"methods", "collections", "objects", "loads", "exceptions", "threads"} {
				rate := r.Num(column+"_per_s") * r.Num("interval_ns") / 1e9
				if r.Num(column) != want[column] || r.Has(column) != (want[column] > 0) || rate < want[column]*0.99 || rate > want[column]*1.01 {
					t.Errorf("%s %v, %v per second, want %v in %v ns", column, r.Num(column), r.Num(column+"_per_s"), want[column], r.Num("interval_ns"))
				}
			}
		})
	}
}

// TestText checks the header of BCC, and its names for sorting.
func TestText(t *testing.T) {
	lib := languagetest.Open(t, "perl", "perl:sub__entry")
	for _, sort := range []string{"cload", "excp", "gc", "method", "objnew", "thread"} {
		out := tooltest.Text(t, Tool, self("-C", "-S", sort, "60"), func() { lib.Call("perl:sub__entry", native.Call{}) })
		lines := strings.Split(out, "\n")
		if strings.Join(strings.Fields(lines[1]), " ") != "PID CMDLINE METHOD/s GC/s OBJNEW/s CLOAD/s EXC/s THR/s" || strings.Count(lines[2], "  -") != 5 {
			t.Errorf("text is %q", out)
		}
	}
}

// TestPython compares with the calls that Python counts itself.
func TestPython(t *testing.T) {
	path := languagetest.Interpreter(t, "python:function__return", "/usr/bin/python3", "python3")
	res, _ := languagetest.Run(t, Tool, []string{"60"}, path, "-c", `
import os
def f(): pass
print("ready", flush=True); input()
for i in range(5000): f()
os._exit(0)`)
	if len(res.Rows) != 1 || res.Rows[0].Num("methods") < 5000 || res.Rows[0].Num("methods") > 5100 {
		t.Errorf("rows %v, want 5000 methods, and some of Python", res.Rows)
	}
}
