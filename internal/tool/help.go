package tool

import (
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

// help writes the usage and the flags.
func (l *line) help(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nUsage: %s\n\n", l.tool.Name, l.tool.Summary, l.usage())
	for _, f := range l.set.All() {
		if f.Position == "" {
			fmt.Fprintf(&b, "  %-28s %s\n", flagText(f), flagHelp(f))
		}
	}
	if len(l.tool.Examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range l.tool.Examples {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	fmt.Fprintf(&b, "\nThe whole manual: corescope man %s\n", l.tool.Name)
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *line) usage() string {
	usage := l.tool.Name + " [flags]"
	end := ""
	for _, f := range l.set.All() {
		if f.Position != "" {
			usage += " [" + f.Position
			end += "]"
		}
	}
	return usage + end
}

func flagText(f flags.Flag) string {
	short := "    "
	if f.Short != "" {
		short = "-" + f.Short + ", "
	}
	return strings.TrimRight(short+"--"+f.Long+" "+f.Arg, " ")
}

func flagHelp(f flags.Flag) string {
	if f.Default == "" || f.Default == "false" {
		return f.Help
	}
	return fmt.Sprintf("%s (%s)", f.Help, f.Default)
}
