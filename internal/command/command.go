// Package command implements the multi-call binary: it selects the tool by the name of the program
// or by its first argument, and implements the verbs, such as list, man and doctor.
package command

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

// Command is the program with its tools.
type Command struct {
	Tools   []*tool.Tool
	Version string
	// Objects is the text of tools.Objects: how the BPF objects were built.
	Objects string
	Out     io.Writer
	Err     io.Writer
}

// Begin begins to run the tool or verb that args select. args[0] is the name of the program. The returned
// function must be called: it returns the exit code. See [tool.Begin].
func (c *Command) Begin(args []string) (run func(context.Context) int) {
	if tool.IsRemover(args) {
		return func(context.Context) int { return tool.Remove() }
	}
	if !isKubectlPlugin(args[0]) {
		if t, rest := c.tool(args); t != nil {
			return tool.Begin(t, rest, c.Out, c.Err)
		}
	}
	return func(ctx context.Context) int { return c.runVerb(ctx, args) }
}

// Run is Begin with a context that exists before.
func (c *Command) Run(ctx context.Context, args []string) int { return c.Begin(args)(ctx) }

// tool returns the tool that args select, and its arguments, or nil.
func (c *Command) tool(args []string) (t *tool.Tool, rest []string) {
	if t := c.named(args[0]); t != nil {
		return t, args[1:]
	}
	if len(args) < 2 {
		return nil, nil
	}
	return c.find(args[1]), args[2:]
}

func (c *Command) runVerb(ctx context.Context, args []string) int {
	if isKubectlPlugin(args[0]) {
		return c.report(c.kubectl(ctx, args[1:]))
	}
	if len(args) < 2 {
		c.usage(c.Err)
		return tool.ExitUsage
	}
	if list, rest, ok := hostsOf(args[1:]); ok {
		return c.report(c.remote(ctx, list, rest))
	}
	if v := findVerb(args[1]); v != nil {
		return c.report(v.run(c, ctx, args[2:]))
	}
	fmt.Fprintf(c.Err, "corescope: %v: unknown tool or verb %q (see corescope help)\n", flags.ErrUsage, args[1])
	return tool.ExitUsage
}

// named returns the tool with the name of a command, or nil. Distributions can add a prefix or a
// suffix to the name: bpf-execsnoop, execsnoop-libbpf.
func (c *Command) named(path string) *tool.Tool {
	name := filepath.Base(path)
	if t := c.find(name); t != nil {
		return t
	}
	if _, rest, ok := strings.Cut(name, "-"); ok {
		if t := c.find(rest); t != nil {
			return t
		}
	}
	if i := strings.LastIndex(name, "-"); i >= 0 {
		return c.find(name[:i])
	}
	return nil
}

func (c *Command) find(name string) *tool.Tool {
	for _, t := range c.Tools {
		if t := t.As(name); t != nil {
			return t.OfVersion(c.Version)
		}
	}
	return nil
}

// names lists the names of all tools, including aliases.
func (c *Command) names() []string {
	var names []string
	for _, t := range c.Tools {
		names = append(names, t.Names()...)
	}
	return names
}
