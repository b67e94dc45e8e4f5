package trace

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestExceptions shows return values of a function with its own and with shared return
// instructions, in a program in which exceptions leave functions.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	for _, hook := range []string{"", "user_return=multi", "user_return=uprobe"} {
		args := []string{"r:" + path + ":tail(retval)", "r:" + path + ":passes(retval)"}
		if hook != "" {
			args = append(args, "--hook", hook)
		}
		res := tooltest.JSON(t, Tool, args, func() { tooltest.RunThrows(t, path) })
		var values []float64
		passes := 0
		for _, r := range res.Events {
			if r.Str("func") == "tail" {
				values = append(values, r.Object("args").Num("retval"))
			} else {
				passes++
			}
		}
		if want := tooltest.ThrowsReturned(); len(values) != int(want["tail"]) || passes != int(want["passes"]) || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: %d returns of tail, %d of passes: %v", hook, len(values), passes, res.Summary)
		}
		for i, v := range values {
			if want := float64(i + i%2); v != want {
				t.Errorf("%s: tail(%d) returned %v, want %v", hook, i, v, want)
			}
		}
	}
}
