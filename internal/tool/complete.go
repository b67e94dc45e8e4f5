package tool

import (
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
)

// Candidate is what a word of a command line may be, and what that is.
type Candidate struct{ Word, Help string }

// Complete returns what the last of a tool's arguments may be. There are none for
// what is free, such as a number or a path.
func (f *Facts) Complete(args []string) []Candidate {
	word, before := "", ""
	if n := len(args); n > 0 {
		word = args[n-1]
		if n > 1 {
			before = args[n-2]
		}
	}
	if name, text, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "--") {
		return candidates(f.valuesOf(name), name+"=", text)
	}
	if flag := f.flag(before); flag != nil && flag.Arg != "" {
		return candidates(f.valuesOf(before), "", word)
	}
	if !strings.HasPrefix(word, "-") {
		return nil
	}
	return startingWith(f.flagWords(), word)
}

func (f *Facts) flag(word string) *flags.Flag {
	for _, g := range f.Flags {
		for i := range g.Flags {
			flag := &g.Flags[i]
			if flag.Long != "" && word == "--"+flag.Long || flag.Short != "" && word == "-"+flag.Short {
				return flag
			}
		}
	}
	return nil
}

func (f *Facts) flagWords() []Candidate {
	var out []Candidate
	for _, g := range f.Flags {
		for _, flag := range g.Flags {
			if flag.Long != "" {
				out = append(out, Candidate{"--" + flag.Long, flag.Help})
			}
		}
	}
	return append(out, Candidate{"--help", "show the flags"})
}

// valuesOf lists the values of a flag that are known beforehand.
func (f *Facts) valuesOf(word string) []Candidate {
	var out []Candidate
	flag := f.flag(word)
	if flag == nil {
		return nil
	}
	switch flag.Long {
	case "output":
		return []Candidate{
			{string(output.Text), "columns for people"},
			{string(output.JSON), "an object a line"},
			{string(output.CSV), "values between commas"},
		}
	case "columns":
		return append(columnWords(f.Columns), Candidate{"all", "every column there is"})
	case "hook":
		for _, h := range f.Hooks {
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

// candidates completes the last part of a list between commas, which may begin with
// a plus; before is what stands before the list.
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
