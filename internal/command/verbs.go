package command

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/tool"
)

var errUsage = errors.New("usage")

func (c *Command) verbs() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"list":    c.list,
		"version": c.version,
	}
}

func (c *Command) report(err error) int {
	switch {
	case err == nil:
		return tool.ExitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(c.Err, "corescope: %v\n", err)
		return tool.ExitUsage
	}
	fmt.Fprintf(c.Err, "corescope: %v\n", err)
	return tool.ExitFailure
}

func (c *Command) usage(w io.Writer, code int) int {
	verbs := slices.Sorted(maps.Keys(c.verbs()))
	fmt.Fprintf(w, "Usage: corescope TOOL [flags]\n       corescope %s\n", strings.Join(verbs, "|"))
	return code
}

// list writes the tools; with --names all names, one a line.
func (c *Command) list(args []string) error {
	for _, t := range c.Tools {
		if slices.Contains(args, "--names") {
			fmt.Fprintln(c.Out, strings.Join(t.Names(), "\n"))
			continue
		}
		fmt.Fprintf(c.Out, "%-16s %-10s %s\n", t.Name, t.Category, t.Summary)
	}
	return nil
}

func (c *Command) version([]string) error {
	_, err := io.WriteString(c.Out, "corescope "+c.Version+"\n")
	return err
}
