package execsnoop

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestLongArgumentsWake checks that an exec with long arguments wakes the reader, although the delay has not passed
// since the last wake-up or, on a machine that has just started, since the boot: few of them fill the buffer.
func TestLongArgumentsWake(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	const want = 4
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
		tool.Run(ctx, slow, children("--output", "json", "--limit", strconv.Itoa(want)), w, io.Discard)
		w.Close()
	}()
	rows := 0
	for lines := bufio.NewReaderSize(r, 1<<20); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		more := 0
		switch {
		case strings.Contains(line, `"type":"ready"`):
			more = 2 // the first record of an exec wakes the reader, which then also reads the last one of the exec before
		case strings.Contains(line, `"type":"event"`):
			if rows++; rows == 1 {
				more = 3 // the reader waits again: it writes so few bytes when nothing is left to read
			}
		}
		for range more {
			run(t, &exec.Cmd{Path: target, Args: slices.Repeat([]string{strings.Repeat("x", 4096)}, 4)})
		}
	}
	if ctx.Err() != nil || rows != want {
		t.Errorf("%d rows, %v: want %d before the end of the run", rows, ctx.Err(), want)
	}
}
