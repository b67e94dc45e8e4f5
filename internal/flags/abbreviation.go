package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// complete returns the long name that an unambiguous abbreviation stands for. Other names are
// returned as they are.
func (s *Set) complete(name string) string {
	if !s.parsing {
		return name
	}
	if names := s.startingWith(name); len(names) == 1 {
		return names[0]
	}
	return name
}

// startingWith lists the long names that begin with the text: only that name if it is complete, and
// one name for each flag that has several.
func (s *Set) startingWith(text string) (names []string) {
	var values []pflag.Value
	exact := false
	s.flags.VisitAll(func(f *pflag.Flag) {
		exact = exact || f.Name == text
		if strings.HasPrefix(f.Name, text) && !slices.Contains(values, f.Value) {
			names, values = append(names, f.Name), append(values, f.Value)
		}
	})
	if exact {
		return []string{text}
	}
	return names
}

// explainUnknown adds the names that an ambiguous abbreviation can stand for to pflag's error about
// an unknown flag.
func (s *Set) explainUnknown(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := unknown.GetSpecifiedName()
	names := s.startingWith(strings.ReplaceAll(name, "_", "-"))
	if name == "" || len(names) < 2 {
		return err
	}
	slices.Sort(names)
	return fmt.Errorf("ambiguous flag --%s: it can be --%s", name, strings.Join(names, ", --"))
}
