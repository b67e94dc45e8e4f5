package tool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/probe"
)

// Of a hook and its stand-in one is taken, and the other may be missing.
func TestStandIns(t *testing.T) {
	pairs := []StandIn{{Hook: "calls", For: "functions", Means: "all is slower"}}
	ok := []probe.Attempt{{Variant: probe.Variant{Kind: "raw"}}}
	no := []probe.Attempt{{Variant: probe.Variant{Kind: "raw"}, Err: errors.New("no")}}
	for _, tc := range []struct {
		functions, calls []probe.Attempt
		taken            string
		missing          bool
	}{
		{ok, ok, "functions", false},
		{ok, no, "functions", false},
		{no, ok, "calls", false},
		{no, no, "", true},
	} {
		tried := map[string][]probe.Attempt{"functions": tc.functions, "calls": tc.calls}
		var taken []string
		for _, e := range explainAll(tried, pairs) {
			if e.Taken {
				taken = append(taken, e.Hook)
			}
		}
		if !slices.Equal(taken, strings.Fields(tc.taken)) {
			t.Errorf("taken %q, want %q", taken, tc.taken)
		}
		if err := missingHook(tried, excused(tried, pairs)); (err != nil) != tc.missing {
			t.Errorf("with %q: %v", tc.taken, err)
		}
	}
}

// The manual says when a stand-in is taken, and what that means.
func TestManualOfStandIns(t *testing.T) {
	f := newFake()
	f.programs["calls__raw"] = "raw_tp/sys_enter"
	f.StandIns = []StandIn{{Hook: "calls", For: "open", Means: "all is slower"}}
	if text := manualText(t, f); !strings.Contains(text, "Used only if the kernel does not support the hook open: all is slower.") {
		t.Errorf("it is not in the manual: %s", text)
	}
}
