package tools_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

// TestCounters checks that each tool that counts per interval has a column whose values add up, so that
// its output can be exported as metrics.
func TestCounters(t *testing.T) {
	averages := []string{"loads"}
	for _, tl := range tools.All() {
		o, err := (&tool.Stream{Tool: tl, ErrOut: io.Discard}).Outline()
		if errors.Is(err, flags.ErrUsage) { // a list, or a tool that needs an argument
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tl.Name, err)
			continue
		}
		isCounter := func(c column.Column) bool { return c.Counter }
		want := o.Kind == output.KindRow && !slices.Contains(averages, tl.Name)
		if got := slices.ContainsFunc(o.Columns, isCounter); got != want {
			t.Errorf("%s: has a counter: %t, want %t", tl.Name, got, want)
		}
	}
}
