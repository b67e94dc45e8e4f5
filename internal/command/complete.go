package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/tool"
)

// complete is what the completion scripts call, with the words of a command line up
// to the one that is to be completed. It writes a candidate a line, with what it is
// behind a tab; nothing where any word may stand.
func (c *Command) complete(_ context.Context, words []string) error {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	var b strings.Builder
	for _, cand := range c.candidates(words) {
		fmt.Fprintf(&b, "%s\t%s\n", cand.Word, cand.Help)
	}
	_, err := io.WriteString(c.Out, b.String())
	return err
}

func (c *Command) candidates(words []string) []tool.Candidate {
	if len(words) < 2 {
		return nil
	}
	if t := c.named(words[0]); t != nil {
		return completeTool(t, words[1:])
	}
	word, last := words[1], words[len(words)-1]
	if len(words) == 2 {
		return startingWith(append(c.toolWords(), verbWords()...), last)
	}
	if t := c.find(word); t != nil {
		return completeTool(t, words[2:])
	}
	return startingWith(c.completeVerb(word, words[2:]), last)
}

func (c *Command) completeVerb(name string, args []string) []tool.Candidate {
	v := findVerb(name)
	switch {
	case v == nil || v.args == "":
		return nil
	case v.name == "schema" && len(args) > 1:
		if t := c.find(args[0]); t != nil {
			return completeTool(t, args[1:])
		}
		return nil
	case strings.Contains(v.args, "TOOL"):
		return c.toolWords()
	}
	var out []tool.Candidate
	for word := range strings.SplitSeq(strings.Trim(v.args, "[]"), "|") {
		out = append(out, tool.Candidate{Word: word})
	}
	return out
}

func (c *Command) toolWords() []tool.Candidate {
	var out []tool.Candidate
	for _, t := range c.Tools {
		out = append(out, tool.Candidate{Word: t.Name, Help: t.Summary})
		for _, a := range t.Also {
			out = append(out, tool.Candidate{Word: a.Name, Help: t.As(a.Name).StandsFor()})
		}
	}
	return out
}

func verbWords() []tool.Candidate {
	var out []tool.Candidate
	for _, v := range verbs() {
		out = append(out, tool.Candidate{Word: v.name, Help: v.summary})
	}
	return out
}

func completeTool(t *tool.Tool, args []string) []tool.Candidate {
	facts, err := t.Facts()
	if err != nil {
		return nil
	}
	return facts.Complete(args)
}

func startingWith(all []tool.Candidate, prefix string) []tool.Candidate {
	return slices.DeleteFunc(all, func(c tool.Candidate) bool { return !strings.HasPrefix(c.Word, prefix) })
}
