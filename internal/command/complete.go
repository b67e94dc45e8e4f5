package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/tool"
)

// complete is called by the completion scripts with the words of a command line, the last of which
// is to be completed. It writes one candidate per line, followed by a tab and a description. It
// writes nothing if any word is allowed.
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

func (c *Command) candidates(words []string) []document.Candidate {
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

func (c *Command) completeVerb(name string, args []string) []document.Candidate {
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
	var out []document.Candidate
	for word := range strings.SplitSeq(strings.Trim(v.args, "[]"), "|") {
		out = append(out, document.Candidate{Word: word})
	}
	return out
}

func (c *Command) toolWords() []document.Candidate {
	var out []document.Candidate
	for _, t := range c.Tools {
		out = append(out, document.Candidate{Word: t.Name, Help: t.Summary})
		for _, a := range t.Also {
			out = append(out, document.Candidate{Word: a.Name, Help: t.As(a.Name).StandsFor()})
		}
	}
	return out
}

func verbWords() []document.Candidate {
	var out []document.Candidate
	for _, v := range verbs() {
		out = append(out, document.Candidate{Word: v.name, Help: v.summary})
	}
	return out
}

func completeTool(t *tool.Tool, args []string) []document.Candidate {
	facts, err := t.Facts()
	if err != nil {
		return nil
	}
	return facts.Complete(args)
}

func startingWith(all []document.Candidate, prefix string) []document.Candidate {
	return slices.DeleteFunc(all, func(c document.Candidate) bool { return !strings.HasPrefix(c.Word, prefix) })
}
