package document

import (
	"fmt"
	"io"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

// Help writes the usage, the flags and the examples.
func (t *Tool) Help(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nUsage: %s\n", t.Name, t.Summary, usage(t.Name+" [flags]", t.Flags))
	if t.StandsFor != "" {
		fmt.Fprintf(&b, "The same as %s\n", t.StandsFor)
	}
	for _, g := range t.Flags {
		fmt.Fprintf(&b, "\n%s:\n", g.Title)
		for _, f := range g.Flags {
			if f.Position == "" {
				fmt.Fprintf(&b, "  %-28s %s\n", flagText(f), flagHelp(f))
			}
		}
	}
	if len(t.Examples) > 0 {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.Join(t.Examples, "\n  "))
	}
	page, _, _ := strings.Cut(t.Name, " ") // a verb is described in the page of its program
	fmt.Fprintf(&b, "\nManual page: corescope man %s\n", page)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write help: %w", err)
	}
	return nil
}

// usageWidth is the maximum length of a line of Usage.
const usageWidth = 80

// Usage writes the names of all flags and of the positional arguments, without their meaning.
func (t *Tool) Usage(w io.Writer) error {
	start := "Usage: " + t.Name
	words := []string{}
	for _, g := range t.Flags {
		for _, f := range g.Flags {
			if f.Position != "" {
				continue
			}
			names := "--" + f.Long
			if f.Short != "" {
				names = "-" + f.Short + "|" + names
			}
			words = append(words, "["+strings.TrimRight(names+" "+f.Arg, " ")+"]")
		}
	}
	if p := strings.TrimSpace(usage("", t.Flags)); p != "" {
		words = append(words, p)
	}
	text, width := start, len(start)
	for _, word := range words {
		if width+1+len(word) > usageWidth {
			text += "\n" + strings.Repeat(" ", len(start))
			width = len(start)
		}
		text += " " + word
		width += 1 + len(word)
	}
	if _, err := io.WriteString(w, text+"\n"); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// usage appends the positional arguments to start: "[interval [count]]".
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

// flagHelp returns the help of a flag with its allowed values, other name and default.
func flagHelp(f flags.Flag) string {
	help := f.Help
	if f.Allowed != "" {
		help += " (" + f.Allowed + ")"
	}
	if f.Also != "" {
		help += "; also --" + f.Also
	}
	if f.Default != "" && f.Default != "false" {
		help += " (default: " + f.Default + ")"
	}
	return help
}
