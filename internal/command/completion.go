package command

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

//go:embed completion
var scripts embed.FS

// renaming are the flags of completion: how a distribution has named the tools.
type renaming struct {
	Shell  string `pos:"shell" help:"bash, zsh or fish"`
	Prefix string `flag:"prefix" help:"what the tools' names begin with"`
	Suffix string `flag:"suffix" help:"what the tools' names end with"`
}

// completion prints the script that completes the program and each of the tools. All
// that it knows it asks the program for.
func (c *Command) completion(_ context.Context, args []string) error {
	var o renaming
	set := flags.New("completion")
	if err := set.Add(&o, nil); err != nil {
		return err
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	script, err := scripts.ReadFile("completion/" + o.Shell)
	if err != nil {
		return fmt.Errorf("%w: completion is for bash, zsh or fish", flags.ErrUsage)
	}
	names := []string{"corescope"}
	for _, name := range c.names() {
		names = append(names, o.Prefix+name+o.Suffix)
	}
	_, err = io.WriteString(c.Out, strings.ReplaceAll(string(script), "@NAMES@", strings.Join(names, " ")))
	return err
}
