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

// renaming defines the flags of completion: how a distribution has renamed the tools.
type renaming struct {
	Shell  string `pos:"shell" help:"bash, zsh or fish"`
	Prefix string `flag:"prefix" help:"prefix of the tools' names"`
	Suffix string `flag:"suffix" help:"suffix of the tools' names"`
}

// completion prints the completion script of a shell. The script calls corescope complete for the
// candidates.
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
		return fmt.Errorf("%w: unknown shell %q: want bash, zsh or fish", flags.ErrUsage, o.Shell)
	}
	names := []string{"corescope"}
	for _, name := range c.names() {
		names = append(names, o.Prefix+name+o.Suffix)
	}
	_, err = io.WriteString(c.Out, strings.ReplaceAll(string(script), "@NAMES@", strings.Join(names, " ")))
	return err
}
