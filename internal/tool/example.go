package tool

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
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

// ExampleArgs returns the arguments of an example of a tool, without its purpose.
func ExampleArgs(example string) []string {
	command, _, _ := strings.Cut(example, "# ")
	return splitWords(command)[1:]
}

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

// Header returns the line of column names above the rows of a command line, or the title of its
// histograms, with single spaces. It is empty if there is none. Header needs no kernel.
func (t *Tool) Header(args ...string) (string, error) {
	l, err := t.parse(args)
	if err != nil {
		return "", err
	}
	env := newEnv()
	env.PIDs = l.tasks.PID
	src, err := l.build(env)
	if err != nil {
		return "", flags.Usage(err)
	}
	if src.Base().Print != nil {
		return "", nil
	}
	if err := l.common.checkOutput(src); err != nil {
		return "", err
	}
	spec, err := t.Object()
	if err != nil {
		return "", fmt.Errorf("read BPF object: %w", err)
	}
	d, err := src.Describe(env, spec)
	if err != nil {
		return "", err
	}
	if err := d.Columns.choose(&l.common, l.selection.Columns, d.Text); err != nil {
		return "", flags.Usage(err)
	}
	return d.header(output.Format(l.common.Output)), nil
}

func (d *Description) header(format output.Format) string {
	if d.Title != "" && format == output.Text {
		return d.Title
	}
	return strings.Join(strings.Fields(output.Header(format, d.Columns.Shown)), " ")
}
