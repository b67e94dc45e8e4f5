package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

// listFlags are the flags of list.
type listFlags struct {
	Names    bool `flag:"names" help:"all names including aliases, one per line"`
	Aliases  bool `flag:"aliases" help:"aliases, one per line, each followed by the name of the tool"`
	Markdown bool `flag:"markdown" help:"a Markdown table"`
}

// list writes the tools by category, one per line.
func (c *Command) list(_ context.Context, args []string) error {
	var o listFlags
	set := flags.New("list")
	if err := set.Add(&o, nil); err != nil {
		return err
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	text := c.listText()
	switch {
	case o.Names:
		text = strings.Join(c.names(), "\n") + "\n"
	case o.Aliases:
		text = c.listAliases()
	case o.Markdown:
		text = c.listMarkdown()
	}
	_, err := io.WriteString(c.Out, text)
	return err
}

// sorted returns the tools in the order of category and name.
func (c *Command) sorted() []*tool.Tool {
	return slices.SortedFunc(slices.Values(c.Tools), func(a, b *tool.Tool) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Name, b.Name))
	})
}

func (c *Command) listAliases() string {
	var b strings.Builder
	for _, t := range c.sorted() {
		for _, a := range t.Also {
			fmt.Fprintf(&b, "%s %s\n", a.Name, t.Name)
		}
	}
	return b.String()
}

func (c *Command) listText() string {
	width := 0
	for _, name := range c.names() {
		width = max(width, len(name))
	}
	var b strings.Builder
	category := ""
	for _, t := range c.sorted() {
		if t.Category != category {
			category = t.Category
			fmt.Fprintf(&b, "%s:\n", category)
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", width, t.Name, t.Summary)
		for _, a := range t.Also {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, a.Name, t.As(a.Name).StandsFor())
		}
	}
	return b.String()
}

// listMarkdown returns a table with links to the manual pages, relative to the root of the tree.
func (c *Command) listMarkdown() string {
	var b strings.Builder
	b.WriteString("| tool | category | summary |\n|---|---|---|\n")
	for _, t := range c.sorted() {
		also := ""
		if names := t.Names()[1:]; len(names) > 0 {
			also = "; also " + strings.Join(names, ", ")
		}
		fmt.Fprintf(&b, "| [%s](man/man8/%[1]s.8) | %s | %s%s |\n", t.Name, t.Category, t.Summary, also)
	}
	return b.String()
}
