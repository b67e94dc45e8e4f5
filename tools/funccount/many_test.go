package funccount

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// manyFunctions is a pattern for 40 functions.
func manyFunctions(t *testing.T) string {
	t.Helper()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("many%02d", i))
	}
	return native.Open(t, "libmany.so", names).Path + ":many*"
}

// TestExplainMany checks --explain with many functions. It attaches to a few of them: one by one they
// would take minutes.
func TestExplainMany(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, []string{"--explain", manyFunctions(t)}, &out, &errOut); code != tool.ExitOK {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	for _, kind := range []string{"multi", "uprobe"} {
		if !strings.Contains(out.String(), "user  "+kind) {
			t.Errorf("%q has no line for %s", out.String(), kind)
		}
	}
	if !strings.Contains(out.String(), "used") {
		t.Errorf("%q: no attach type is used", out.String())
	}
}

// TestStopWhileAttaching checks that a signal ends the run before all functions are attached.
func TestStopWhileAttaching(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"--hook", "user=uprobe"}, {"--explain"}, nil} {
		var out, errOut bytes.Buffer
		code := tool.Run(ctx, Tool, append(args, manyFunctions(t)), &out, &errOut)
		if code != tool.ExitOK || out.Len() != 0 || errOut.Len() != 0 {
			t.Errorf("%v: exit code %d, output %q, %q, want a regular end", args, code, out.String(), errOut.String())
		}
	}
}
