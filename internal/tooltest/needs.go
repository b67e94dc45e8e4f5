package tooltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// NeedsTracefs reports whether the tool has a fixed hook with the attach type tp only, which is looked
// up in tracefs; trace and argdist attach to tracepoints that the user names. Where tracefs is closed
// to other users, the tool also needs CAP_DAC_READ_SEARCH.
func NeedsTracefs(t testing.TB, tl *tool.Tool) bool {
	t.Helper()
	facts, err := tl.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range facts.Hooks {
		if !slices.ContainsFunc(h.Variants, func(v probe.Variant) bool { return v.Kind != "tp" || !strings.Contains(v.String(), "/") }) {
			return true
		}
	}
	return false
}
