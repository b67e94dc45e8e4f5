package offcputime

import (
	"slices"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestFrameless checks that functions without frame pointers have complete stacks, from .eh_frame.
func TestFrameless(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	res := tooltest.JSON(t, Tool, []string{"-U", "--pid", pid, "--duration", "500ms"}, nil)
	var all, whole float64
	for _, r := range res.Rows {
		all += r.Num("count")
		if slices.Equal(r.Symbols("user_stack"), tooltest.FramelessChain()) {
			whole += r.Num("count")
		}
	}
	if all < 20 || whole < 0.99*all {
		t.Errorf("%.0f of %.0f waits have complete stacks: %v", whole, all, res.Rows)
	}
}
