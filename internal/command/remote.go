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
	if len(args) == 0 {
		return fmt.Errorf("%w: %s %s: the name of a tool is missing", flags.ErrUsage, hostsFlag, list)
	}
	t := c.find(args[0])
	if t == nil {
		return fmt.Errorf("%w: unknown tool %q (see corescope list)", flags.ErrUsage, args[0])
	}
	format, err := t.Format(args[1:])
	if err != nil {
		return err
	}
	if !slices.Contains([]output.Format{output.Text, output.JSON, output.CSV}, format) {
		return fmt.Errorf("%w: --output %s is not supported with %s: it must be text, json or csv", flags.ErrUsage, format, hostsFlag)
	}
	r := remote.Run{Hosts: hosts, Tool: t.Name, Args: args[1:], Format: format, Version: c.Version, Out: c.Out, ErrOut: c.Err}
	code, err := r.Do(ctx)
	if err != nil || code == tool.ExitOK {
		return err
	}
	return exitCode(code)
}

// hostsOf returns the list of --host and the words after it.
func hostsOf(args []string) (list string, rest []string, ok bool) {
	if len(args) == 0 {
		return "", nil, false
	}
	if list, ok := strings.CutPrefix(args[0], hostsFlag+"="); ok {
		return list, args[1:], true
	}
	if args[0] == hostsFlag && len(args) > 1 {
		return args[1], args[2:], true
	}
	return "", nil, false
}
