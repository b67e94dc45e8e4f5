package funccount

import (
	"fmt"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestExceptions counts returns of functions that exceptions leave, without an effect on the
// program.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	want := fmt.Sprint(tooltest.ThrowsReturned())
	for _, hook := range []string{"", "user_return=multi", "user_return=uprobe"} {
		args := []string{"-r", "uretprobe:" + path + ":(throws|passes|tail|several|naps|waits)$"}
		if hook != "" {
			args = append(args, "--hook", hook)
		}
		res := tooltest.JSON(t, Tool, args, func() { tooltest.RunThrows(t, path) })
		if got := counted(res); got != want || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: %s, want %s: %v", hook, got, want, res.Summary)
		}
	}
}
