package funclatency

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestExceptions measures functions that exceptions and the cancellation of a thread leave: the
// program is not affected, and calls that do not return are counted.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	var left uint64
	for _, n := range tooltest.ThrowsLeft() {
		left += n
	}
	for _, hook := range []string{"", "user=multi", "user=uprobe"} {
		args := []string{"-F", "-r", path + ":(throws|passes|tail|several|naps|waits)$"}
		if hook != "" {
			args = append(args, "--hook", hook)
		}
		start := time.Now()
		res := tooltest.JSON(t, Tool, args, func() { tooltest.RunThrows(t, path) })
		all := time.Since(start)
		got := byFunc(res)
		for name, want := range tooltest.ThrowsReturned() {
			if n := got[name].Num("count"); n != float64(want) {
				t.Errorf("%s: %v returns of %s, want %d", hook, n, name, want)
			}
		}
		if r := got["naps"]; r.Num("min") < float64(tooltest.ThrowsNap) || r.Num("max") > float64(all) {
			t.Errorf("%s: naps took %v to %v ns, want at least %v", hook, r.Num("min"), r.Num("max"), tooltest.ThrowsNap)
		}
		counters := res.Summary.Object("counters")
		if n := counters.Num("no_return"); n != float64(left) || counters.Num("no_begin") != 0 || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: summary is %v, want %d calls without return", hook, res.Summary, left)
		}
	}
}

// TestUnsafeReturn checks that a function whose return instructions are unknown is rejected unless
// --uretprobes is given.
func TestUnsafeReturn(t *testing.T) {
	path := tooltest.CompileThrows(t)
	var out, errOut bytes.Buffer
	code := tool.Run(t.Context(), Tool, []string{path + ":indirect"}, &out, &errOut)
	text := errOut.String()
	if code != tool.ExitUsage {
		t.Errorf("exit code %d, want %d", code, tool.ExitUsage)
	}
	for _, want := range []string{"indirect", path, "unknown", "--uretprobes"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message lacks %q: %s", want, text)
		}
	}
	for function, want := range map[string]string{"passes": "at 1 return instruction", "indirect": "by uretprobes"} {
		out.Reset()
		if code := tool.Run(t.Context(), Tool, []string{"--uretprobes", "--explain", path + ":" + function}, &out, &errOut); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, want %q: %s", function, code, want, out.String())
		}
	}
}
