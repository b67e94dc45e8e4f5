package document

import (
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
)

// Candidate is a completion of a word, and its description.
type Candidate struct{ Word, Help string }

// Complete returns the completions of the last of a tool's arguments. There are none for free text,
// such as numbers and paths.
func (t *Tool) Complete(args []string) []Candidate {
	word, previous := "", ""
	if n := len(args); n > 0 {
		word = args[n-1]
		if n > 1 {
			previous = args[n-2]
		}
	}
	if name, text, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "--") {
		return candidates(t.valuesOf(name), name+"=", text)
	}
	if flag := t.flag(previous); flag != nil && flag.Arg != "" {
		return candidates(t.valuesOf(previous), "", word)
	}
	if !strings.HasPrefix(word, "-") {
		return nil
	}
	return startingWith(t.flagWords(), word)
}

func (t *Tool) flag(word string) *flags.Flag {
	for _, g := range t.Flags {
		for i := range g.Flags {
			flag := &g.Flags[i]
			if flag.Long != "" && word == "--"+flag.Long || flag.Short != "" && word == "-"+flag.Short {
				return flag
			}
		}
	}
	return nil
}

func (t *Tool) flagWords() []Candidate {
	var out []Candidate
	for _, g := range t.Flags {
		for _, flag := range g.Flags {
			if flag.Long != "" {
				out = append(out, Candidate{"--" + flag.Long, flag.Help})
			}
		}
	}
	return append(out, Candidate{"--help", "show the flags"})
}

// valuesOf lists the values of a flag that has a fixed set of them.
func (t *Tool) valuesOf(word string) []Candidate {
	var out []Candidate
	flag := t.flag(word)
	if flag == nil {
		return nil
	}
	switch flag.Long {
	case "output":
		return []Candidate{
			{string(output.Text), "aligned columns"},
			{string(output.JSON), "one object per line"},
			{string(output.CSV), "comma-separated values"},
		}
	case "columns":
		return append(columnWords(t.Columns), Candidate{"all", "all columns"})
	case "hook":
		for _, h := range t.Hooks {
			for _, v := range h.Variants {
				out = append(out, Candidate{h.Name + "=" + v.Kind, v.String()})
			}
		}
	}
	return out
}

func columnWords(cols []column.Column) []Candidate {
	var out []Candidate
	for _, c := range cols {
		out = append(out, Candidate{c.Key, c.Help})
	}
	return out
}

// candidates completes the last element of a comma-separated list. An element can begin with a plus.
// before is the text in front of the list.
func candidates(values []Candidate, before, list string) []Candidate {
	last := strings.LastIndexByte(list, ',') + 1
	before += list[:last]
	part, plus := strings.CutPrefix(list[last:], "+")
	if plus {
		before += "+"
	}
	out := startingWith(values, part)
	for i := range out {
		out[i].Word = before + out[i].Word
	}
	return out
}

func startingWith(all []Candidate, prefix string) []Candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return !strings.HasPrefix(c.Word, prefix) })
}
