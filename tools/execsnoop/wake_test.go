package execsnoop

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestLongArgumentsWake checks that an exec with long arguments wakes the reader, although the last wake-up is
// less than the delay ago: few of them fill the buffer.
func TestLongArgumentsWake(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	target := program(t, "true")
	slow := tool.Define(Tool.Spec, options{bufferBytes: bufferBytes}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*source.Events[row]).Delay = time.Hour
		}
		return src, err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	go func() {
		tool.Run(ctx, slow, children("--output", "json", "--limit", "3"), w, io.Discard)
		w.Close()
	}()
	rows := 0
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		switch {
		case strings.Contains(line, `"type":"ready"`):
			run(t, &exec.Cmd{Path: target, Args: []string{"first"}}) // wakes the reader in any case
		case strings.Contains(line, `"type":"event"`):
			if rows++; rows == 1 {
				// The first record of an exec wakes the reader, which then also reads the last one of the exec before.
				for range 3 {
					run(t, &exec.Cmd{Path: target, Args: long(40, 4096)})
				}
			}
		}
	}
	if ctx.Err() != nil || rows != 3 {
		t.Errorf("%d rows, %v: want 3 before the end of the run", rows, ctx.Err())
	}
}
