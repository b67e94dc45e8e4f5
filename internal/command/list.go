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

// listing are the flags of list.
type listing struct {
	Names    bool `flag:"names" help:"all names, one a line, other names of a tool as well"`
	Markdown bool `flag:"markdown" help:"a table for a README"`
}

// list writes the tools below their categories, a line each.
func (c *Command) list(_ context.Context, args []string) error {
	var o listing
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
	case o.Markdown:
		text = c.listMarkdown()
	}
	_, err := io.WriteString(c.Out, text)
	return err
}

// sorted lists the tools by category and name.
func (c *Command) sorted() []*tool.Tool {
	return slices.SortedFunc(slices.Values(c.Tools), func(a, b *tool.Tool) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Name, b.Name))
	})
}

func (c *Command) listText() string {
	width := 0
	for _, t := range c.Tools {
		width = max(width, len(strings.Join(t.Names(), ", ")))
	}
	var b strings.Builder
	category := ""
	for _, t := range c.sorted() {
		if t.Category != category {
			category = t.Category
			fmt.Fprintf(&b, "%s:\n", category)
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", width, strings.Join(t.Names(), ", "), t.Summary)
	}
	return b.String()
}

// listMarkdown has links to the manual pages, from the top of the tree.
func (c *Command) listMarkdown() string {
	var b strings.Builder
	b.WriteString("| tool | about | what it shows |\n|---|---|---|\n")
	for _, t := range c.sorted() {
		fmt.Fprintf(&b, "| [%s](man/man8/%[1]s.8) | %s | %s |\n", t.Name, t.Category, t.Summary)
	}
	return b.String()
}
