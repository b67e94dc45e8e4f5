package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corescope/corescope/docs/symptoms"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/prove"
	"github.com/corescope/corescope/internal/remote"
	"github.com/corescope/corescope/internal/tool"
)

// verb is a command of the program that is not a tool.
type verb struct {
	name string
	// args is the text of its arguments in the usage.
	args    string
	summary string
	run     func(c *Command, ctx context.Context, args []string) error
}

// verbs lists the documented verbs. The program itself uses three others: complete in completion scripts,
// on-host on other hosts, and prove-workload for the processes that prove observes.
func verbs() []verb {
	return []verb{
		{"list", "[--names]", "list the tools", (*Command).list},
		{"help", "[TOOL|SYMPTOM]", "show the usage, the flags of a tool, or where to start with a symptom", (*Command).help},
		{"man", "[TOOL]", "show the manual page: formatted on a terminal, otherwise as roff", (*Command).man},
		{"doctor", "[TOOL...]", "check which tools run on this machine, and how to fix those that do not", (*Command).doctor},
		{"prove", "[TOOL...]", "compare the tools with workloads whose events are known, on this machine", (*Command).prove},
		{"schema", "TOOL [flags]", "print the JSON Schema of --output json of a tool, of doctor or of prove", (*Command).schema},
		{"agent", "[flags]", "run tools and export their output to Prometheus and OpenTelemetry", (*Command).agent},
		{"completion", "bash|zsh|fish", "print the completion script of a shell", (*Command).completion},
		{"version", "[--json]", "print the version, with --json also how the BPF objects were built", (*Command).version},
	}
}

func findVerb(name string) *verb {
	switch name {
	case "-h", "--help":
		name = "help"
	case "--version":
		name = "version"
	case "complete":
		return &verb{name: name, run: (*Command).complete}
	case prove.WorkVerb:
		return &verb{name: name, run: (*Command).proveWorkload}
	case remote.Verb:
		return &verb{name: name, run: (*Command).onHost}
	}
	all := verbs()
	if i := slices.IndexFunc(all, func(v verb) bool { return v.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// exitCode is an error that sets the exit code without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprint("exit code ", int(e)) }

// report prints the error of a verb and returns the exit code.
func (c *Command) report(err error) int {
	var code exitCode
	switch {
	case err == nil, tool.IsClosed(err):
		return tool.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, flags.ErrHelp):
		return c.report(c.usage(c.Out))
	case errors.Is(err, flags.ErrUsage):
		fmt.Fprintf(c.Err, "corescope: %v (see corescope help)\n", err)
		return tool.ExitUsage
	}
	fmt.Fprintf(c.Err, "corescope: %v\n", err)
	return tool.ExitFailure
}

func (c *Command) usage(w io.Writer) error {
	text := "Usage: corescope TOOL [flags]\n" +
		"       corescope --host HOST,... TOOL [flags]   run a tool on several hosts by ssh, and merge the output\n"
	for _, v := range verbs() {
		text += fmt.Sprintf("       corescope %-24s %s\n", v.name+" "+v.args, v.summary)
	}
	text += "\nSymptoms, for corescope help SYMPTOM:\n"
	for _, p := range symptoms.All() {
		text += fmt.Sprintf("       %-24s %s\n", p.Name, p.Title)
	}
	_, err := io.WriteString(w, text)
	return err
}

func (c *Command) help(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return c.usage(c.Out)
	}
	if p, ok := symptoms.Find(args...); ok {
		_, err := io.WriteString(c.Out, p.Text())
		return err
	}
	if len(args) == 1 && c.named(args[0]) != nil {
		tool.Run(ctx, c.named(args[0]), []string{"--help"}, c.Out, c.Err)
		return nil
	}
	if len(args) == 1 && findVerb(args[0]) != nil {
		return c.man(ctx, nil)
	}
	text := "corescope list shows the tools, corescope help the others"
	if like := symptoms.Like(args...); len(like) > 0 {
		text = "symptoms like it: " + strings.Join(like, ", ")
	}
	return fmt.Errorf("%w: %q is not a tool, a verb or a symptom; %s", flags.ErrUsage, strings.Join(args, " "), text)
}

// argument returns the tool that the only argument of a verb names.
func (c *Command) argument(args []string) (*tool.Tool, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("%w: want exactly one tool", flags.ErrUsage)
	}
	t := c.named(args[0])
	if t == nil {
		return nil, fmt.Errorf("%w: unknown tool %q (corescope list shows the tools)", flags.ErrUsage, args[0])
	}
	return t, nil
}
