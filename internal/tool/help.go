package tool

import (
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

// help writes the usage and the flags.
func (l *line) help(w io.Writer) error {
	groups, err := l.tool.flagGroups()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nUsage: %s\n", l.tool.Name, l.tool.Summary, usage(l.tool.Name+" [flags]", groups))
	if len(l.tool.args) > 0 {
		fmt.Fprintf(&b, "The same as %s\n", l.tool.StandsFor())
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n", g.Title)
		for _, f := range g.Flags {
			if f.Position == "" {
				fmt.Fprintf(&b, "  %-28s %s\n", flagText(f), flagHelp(f))
			}
		}
	}
	if len(l.tool.Examples) > 0 {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.Join(l.tool.Examples, "\n  "))
	}
	fmt.Fprintf(&b, "\nThe whole manual: corescope man %s\n", l.tool.Name)
	_, err = io.WriteString(w, b.String())
	return err
}

// usage appends the positional arguments to what comes before them: "[interval [count]]".
func usage(start string, groups []FlagGroup) string {
	end := ""
	for _, f := range positions(groups) {
		start += " [" + f.Position
		end += "]"
	}
	return start + end
}

func positions(groups []FlagGroup) []flags.Flag {
	var out []flags.Flag
	for _, g := range groups {
		for _, f := range g.Flags {
			if f.Position != "" {
				out = append(out, f)
			}
		}
	}
	return out
}

func flagText(f flags.Flag) string {
	short := "    "
	if f.Short != "" {
		short = "-" + f.Short + ", "
	}
	return strings.TrimRight(short+"--"+f.Long+" "+f.Arg, " ")
}

// flagHelp is what a flag does, with its other name and its default.
func flagHelp(f flags.Flag) string {
	help := f.Help
	if f.Also != "" {
		help += "; also --" + f.Also
	}
	if f.Default != "" && f.Default != "false" {
		help += " (default: " + f.Default + ")"
	}
	return help
}
