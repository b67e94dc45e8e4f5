package main

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/test/kernels/plan"
)

// read sorts tests by result and keeps their output and attributes.
func TestRead(t *testing.T) {
	const lines = `
		{"Action": "attr", "Test": "TestA", "Key": "cpus", "Value": "8"}
		{"Action": "attr", "Test": "TestA", "Key": "x", "Value": "1.5"}
		{"Action": "pass", "Test": "TestA"}
		{"Action": "output", "Test": "TestB", "Output": "=== RUN TestB\n"}
		{"Action": "output", "Test": "TestB", "Output": "why\n"}
		{"Action": "skip", "Test": "TestB"}
		{"Action": "fail", "Test": "TestC"}
		{"Action": "output", "Test": "TestD", "Output": "hangs\n"}
		{"Action": "fail"}`
	var c plan.Check
	unfinished, err := read(&c, strings.NewReader(lines))
	if err != nil || unfinished != "hangs" {
		t.Errorf("unfinished %q, %v", unfinished, err)
	}
	if !maps.Equal(c.Attrs, map[string]string{"cpus": "8", "x": "1.5"}) {
		t.Errorf("attributes %v", c.Attrs)
	}
	if c.Passed != 1 || len(c.Skipped) != 1 || c.Skipped[0].Output != "why" || len(c.Failed) != 1 {
		t.Errorf("%+v", c)
	}
}

// Failed tests are repeated only if the output of all of them reports skipped program runs. A test
// with subtests has no output itself.
func TestLackRuns(t *testing.T) {
	skipped := plan.Test{Name: "TestA/one", Output: "x_test.go:1: " + fmt.Sprintf(tooltest.SkippedRuns, 3)}
	parent, other := plan.Test{Name: "TestA"}, plan.Test{Name: "TestB", Output: "wrong"}
	for _, test := range []struct {
		failed []plan.Test
		want   bool
	}{
		{[]plan.Test{skipped}, true},
		{[]plan.Test{skipped, parent}, true},
		{[]plan.Test{skipped, parent, other}, false},
		{[]plan.Test{parent}, false},
	} {
		if got := lackRuns(test.failed); got != test.want {
			t.Errorf("%v: %v, want %v", test.failed, got, test.want)
		}
	}
}

// A check whose only test passes the second time counts as passed.
func TestAmend(t *testing.T) {
	failed := []plan.Test{{Name: "TestA"}}
	c := plan.Check{Failed: failed}
	if amend(&c, &plan.Check{Failed: failed}); c.OK() || len(c.Unsteady) != 0 {
		t.Errorf("failed twice: %+v", c)
	}
	if amend(&c, &plan.Check{Passed: 1}); !c.OK() || c.Passed != 1 || len(c.Unsteady) != 1 {
		t.Errorf("passed the second time: %+v", c)
	}
}

// A tool without programs is checked once, and a tool whose attach types are known with each that works.
func TestChecks(t *testing.T) {
	variants := []plan.Variant{
		{Hook: "h", Kind: "btf", Result: "used", Taken: true},
		{Hook: "h", Kind: "raw", Result: "works"},
		{Hook: "h", Kind: "tp", Result: "not supported by this kernel"},
	}
	for _, test := range []struct {
		name     string
		tool     plan.Tool
		variants []plan.Variant
		short    bool
		want     []plan.Check
	}{
		{"no programs", plan.Tool{Name: "t"}, nil, false, []plan.Check{{Tool: "t"}}},
		{"no programs, short", plan.Tool{Name: "t"}, nil, true, []plan.Check{{Tool: "t", Short: true}}},
		{"suite", plan.Tool{Name: "t", Whole: true}, nil, true, []plan.Check{{Tool: "t", Short: true}}},
		{"programs", plan.Tool{Name: "t"}, variants, false, []plan.Check{{Tool: "t"}, {Tool: "t", Hook: "h", Kind: "raw", Short: true}}},
		{"programs, short", plan.Tool{Name: "t"}, variants, true, []plan.Check{{Tool: "t", Short: true}}},
		{"events", plan.Tool{Name: "t", Events: true}, variants[:1], false, []plan.Check{{Tool: "t"}, {Tool: "t", Perf: true, Short: true}}},
	} {
		if got := checks(test.tool, test.variants, test.short); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
