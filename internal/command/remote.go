package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/remote"
	"github.com/corescope/corescope/internal/tool"
)

// hostsFlag selects hosts: corescope --host a,b TOOL [flags].
const hostsFlag = "--host"

// remote runs a tool on the hosts of a list.
func (c *Command) remote(ctx context.Context, list string, args []string) error {
	hosts, err := remote.Names(list)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", flags.ErrUsage, hostsFlag, err)
	}
	return c.runOn(ctx, remote.Run{Hosts: hosts, Transport: remote.SSH{}, Label: "host"}, args)
}

// runOn runs the tool that args name on the hosts of r.
func (c *Command) runOn(ctx context.Context, r remote.Run, args []string) error {
	t, err := c.toolOf(args)
	if err != nil {
		return err
	}
	format, err := t.Format(args[1:])
	if err != nil {
		return err
	}
	if !slices.Contains([]output.Format{output.Text, output.JSON, output.CSV}, format) {
		return fmt.Errorf("%w: --output %s is not supported on several hosts: it must be text, json or csv", flags.ErrUsage, format)
	}
	r.Tool, r.Args, r.Format, r.Version, r.Out, r.ErrOut = t.Name, slices.Concat(args[1:], r.Args), format, c.Version, c.Out, c.Err
	code, err := r.Do(ctx)
	if err != nil || code == tool.ExitOK {
		return err
	}
	return exitCode(code)
}

// toolOf returns the tool that the first word names.
func (c *Command) toolOf(args []string) (*tool.Tool, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: the name of a tool is missing", flags.ErrUsage)
	}
	t := c.find(args[0])
	if t == nil {
		return nil, fmt.Errorf("%w: unknown tool %q (see corescope list)", flags.ErrUsage, args[0])
	}
	return t, nil
}

// onHost runs a tool for this program on another host.
func (c *Command) onHost(ctx context.Context, args []string) error {
	t, err := c.toolOf(args)
	if err != nil {
		return err
	}
	return exitCode(remote.Serve(ctx, c.Out, func(ctx context.Context) int {
		return tool.Begin(t, args[1:], c.Out, c.Err)(ctx)
	}))
}

// hostsOf returns the list of --host and the words after it.
func hostsOf(args []string) (list string, rest []string, ok bool) {
	if len(args) == 0 {
		return "", nil, false
	}
	if list, ok := strings.CutPrefix(args[0], hostsFlag+"="); ok {
		return list, args[1:], true
	}
	switch {
	case args[0] != hostsFlag:
		return "", nil, false
	case len(args) == 1: // the empty list is a usage error
		return "", nil, true
	}
	return args[1], args[2:], true
}
