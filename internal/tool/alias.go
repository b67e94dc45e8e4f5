package tool

import (
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
)

// Alias is another name of a tool, which implies some of its flags.
type Alias struct {
	Name string
	// Args are the implied arguments. Flags of the user override them. Positional arguments are
	// fixed: those of the user are the ones that follow.
	Args []string
}

// Names lists all names of the tool, its own first.
func (t *Tool) Names() []string {
	names := []string{t.Name}
	for _, a := range t.Also {
		names = append(names, a.Name)
	}
	return names
}

// As returns the tool under one of its names, or nil if it has no such name.
func (t *Tool) As(name string) *Tool {
	if name == t.Name {
		return t
	}
	i := slices.IndexFunc(t.Also, func(a Alias) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	other := *t
	other.Name, other.Also, other.self, other.args = name, nil, t, t.Also[i].Args
	return &other
}

// OfVersion returns the tool as a part of this version of the program.
func (t *Tool) OfVersion(version string) *Tool {
	other := *t
	other.version = version
	return &other
}

// Self returns the tool under its own name.
func (t *Tool) Self() *Tool {
	if t.self != nil {
		return t.self
	}
	return t
}

// StandsFor returns the command line that the name is short for.
func (t *Tool) StandsFor() string {
	return strings.Join(append([]string{t.Self().Name}, t.args...), " ")
}

// setDefaults sets the options that an alias implies. It returns the number of positional arguments
// among them.
func (t *Tool) setDefaults(options any) (int, error) {
	if len(t.args) == 0 {
		return 0, nil
	}
	set := flags.New(t.Name)
	if err := set.Add(options, t.Shorts); err != nil {
		return 0, err
	}
	err := set.Parse(t.args)
	return set.Positional(), err
}
