package memleak

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// onceReady cancels a run when it reports that it is ready.
type onceReady struct {
	bytes.Buffer
	cancel func()
}

func (o *onceReady) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(": ready: ")) {
		o.cancel()
	}
	return o.Buffer.Write(b)
}

// TestUnobserved traces processes without an allocator to attach to: a static program that exits
// immediately, and this Go program.
func TestUnobserved(t *testing.T) {
	tooltest.Root(t)
	tooltest.OnHooks(t, "user")
	static := (&tooltest.Native{Touches: 1}).Write(t)
	for want, args := range map[string][]string{
		static:           {"-c", static},
		"(a Go program)": {"-p", fmt.Sprint(os.Getpid())},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		errOut := &onceReady{cancel: cancel}
		if args[0] == "-c" {
			errOut.cancel = func() {}
		}
		code := tool.Run(ctx, Tool, args, io.Discard, errOut)
		if text := errOut.String(); code != tool.ExitFailure || !strings.Contains(text, "nothing was observed: ") || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, tool.ExitFailure, text)
		}
	}
}
