package tool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/probe"
)

// TestStandIns checks that either a hook or its stand-in is used, and that the other may be missing.
func TestStandIns(t *testing.T) {
	pairs := []StandIn{{Hook: "calls", For: "functions", Means: "all is slower"}}
	ok := []probe.Attempt{{Variant: probe.Variant{Kind: "raw"}}}
	no := []probe.Attempt{{Variant: probe.Variant{Kind: "raw"}, Err: errors.New("no")}}
	for _, tc := range []struct {
		functions, calls []probe.Attempt
		used             string
		missing          bool
	}{
		{ok, ok, "functions", false},
		{ok, no, "functions", false},
		{no, ok, "calls", false},
		{no, no, "", true},
	} {
		tried := map[string][]probe.Attempt{"functions": tc.functions, "calls": tc.calls}
		var used []string
		for _, e := range explainAll(tried, pairs) {
			if e.Taken {
				used = append(used, e.Hook)
			}
		}
		if !slices.Equal(used, strings.Fields(tc.used)) {
			t.Errorf("used %q, want %q", used, tc.used)
		}
		if err := missingHook(tried, replaceable(tried, pairs)); (err != nil) != tc.missing {
			t.Errorf("with %q: %v", tc.used, err)
		}
	}
}

// TestManualOfStandIns checks that the manual states when a stand-in is used and what differs then.
func TestManualOfStandIns(t *testing.T) {
	f := newFake()
	f.programs["calls__raw"] = "raw_tp/sys_enter"
	f.StandIns = []StandIn{{Hook: "calls", For: "open", Means: "all is slower"}}
	if text := manualText(t, f); !strings.Contains(text, "Used only if the kernel does not support the hook open: all is slower.") {
		t.Errorf("the manual page does not describe the stand-in: %s", text)
	}
}
