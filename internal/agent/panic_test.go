package agent

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/template"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
	"github.com/corescope/corescope/tools"
)

// forked is the event of template, a new process, which panics when it is decoded.
type forked struct {
	value.Task
	ChildPID uint32 `json:"child_pid" col:"CHILD,width=7" help:"process ID of the new task"`
	ChildTID uint32 `json:"child_tid" col:"CHILD_TID,width=9" help:"thread ID of the new task"`
}

type panicking struct{ forked }

func (*panicking) Decode([]byte) error {
	panic("while it decodes")
}

// inBackground panics in another goroutine than the one that runs the tool.
type inBackground struct{ *source.Events[forked] }

func (b *inBackground) Run(ctx context.Context, s *tool.Session) error {
	go s.Objects.Guarded(func() { panic("in the background") })()
	return b.Events.Run(ctx, s)
}

// panicTool is a tool with the programs of template.
func panicTool(name string, build func() tool.Source) *tool.Tool {
	spec := template.Tool.Spec
	spec.Name = name
	return tool.Define(spec, struct{}{}, func(*struct{}, *tool.Env) (tool.Source, error) { return build(), nil })
}

// TestPanic runs tools that panic when they decode an event, and in the background, beside one that does not.
func TestPanic(t *testing.T) {
	columns := []string{"pid", "comm", "child_pid"}
	all := append(tools.All(),
		panicTool("panics", func() tool.Source { return &source.Events[panicking]{Columns: columns, BufferBytes: 1 << 20} }),
		panicTool("background", func() tool.Source {
			return &inBackground{&source.Events[forked]{Columns: columns, BufferBytes: 1 << 20}}
		}))
	r := startAgent(t, &Agent{Tools: all, schedule: schedule{every: 24 * time.Hour}}, "tools:\n  - tool: panics\n  - tool: background\n  - {tool: execsnoop, args: [--comm, agentpanic]}\n")
	path := executable(t, "agentpanic")
	const events = "corescope_execsnoop_events_total"
	r.await("execsnoop", func() bool { return r.scrape()[`corescope_tool_up{tool="execsnoop"}`] == 1 })
	executed := 0
	for _, name := range []string{"panics", "background"} {
		r.await("two failures of "+name, func() bool {
			if err := exec.Command(path).Run(); err != nil {
				t.Fatal(err)
			}
			executed++
			return r.scrape()[`corescope_tool_failures_total{tool="`+name+`"}`] >= 2
		})
	}
	r.await("the events of execsnoop", func() bool { return sumOf(r.scrape(), events) >= float64(executed) })
	if n := sumOf(r.scrape(), events); n != float64(executed) {
		t.Errorf("%v events of execsnoop, want %d", n, executed)
	}
	if n := r.scrape()[`corescope_tool_failures_total{tool="execsnoop"}`]; n != 0 {
		t.Errorf("execsnoop failed %v times", n)
	}
	for _, want := range []string{
		`: panics: internal error .*: while it decodes; next start in 1s\n`,
		`: panics: internal error .*; next start in 2s\n`,
		`\(\*panicking\)\.Decode\(`,
		`: background: internal error .*: panic: in the background; next start in 1s\n`,
		`inBackground\)\.Run\.func1`,
	} {
		if !regexp.MustCompile(want).MatchString(r.log.String()) {
			t.Errorf("the messages do not contain %q", want)
		}
	}
	if err := r.agent.Ready(); err == nil || strings.Contains(err.Error(), "execsnoop") {
		t.Errorf("ready: %v", err)
	}
}

// TestPanicInCheck checks a configuration with a tool that panics before anything is loaded.
func TestPanicInCheck(t *testing.T) {
	r := &running{t: t, path: t.TempDir() + "/agent.yaml"}
	r.configure("tools:\n  - tool: panics\n")
	a := Agent{Tools: []*tool.Tool{panicTool("panics", func() tool.Source { panic("early") })}, Path: r.path}
	if _, err := a.Check(); err == nil || !strings.Contains(err.Error(), "panic: early") {
		t.Errorf("%v, want the panic", err)
	}
}
