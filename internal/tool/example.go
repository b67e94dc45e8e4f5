package tool

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// checkExamples parses the examples as command lines, up to a pipe.
func (f *facts) checkExamples() error {
	var errs []error
	for _, example := range f.Examples {
		if err := f.checkExample(example); err != nil {
			errs = append(errs, fmt.Errorf("example %q: %w", example, err))
		}
	}
	return errors.Join(errs...)
}

func (f *facts) checkExample(example string) error {
	command, purpose, _ := strings.Cut(example, "# ")
	if purpose == "" {
		return errors.New("missing its purpose after \"# \"")
	}
	words := splitWords(command)
	if len(words) == 0 || words[0] != f.Name {
		return fmt.Errorf("it does not start with %s", f.Name)
	}
	line, err := f.tool.parse(words[1:])
	if err != nil {
		return err
	}
	src, err := line.build(newEnv())
	if err != nil {
		// It may name a disk or a process that this machine does not have.
		return nil
	}
	_, err = line.facts(src)
	return err
}

// ExampleArgs returns the arguments of an example of a tool.
func ExampleArgs(example string) []string { return splitWords(example)[1:] }

// splitWords splits a command line like a shell, up to a pipe or a redirection.
func splitWords(line string) []string {
	word := regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"|>])+|[|>]`)
	quoted := regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	var words []string
	for _, w := range word.FindAllString(line, -1) {
		if w == "|" || w == ">" {
			break
		}
		words = append(words, quoted.ReplaceAllString(w, "$1$2"))
	}
	return words
}
