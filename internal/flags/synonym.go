package flags

import (
	"fmt"
	"strings"
)

// synonym is a flag or a positional argument that is short for another flag: --csv for
// --output csv.
type synonym struct {
	val         *field
	name        string // of the flag, or "" for a positional argument
	position    string
	other, text string // the other flag and its value; text is "" for the value of val
}

// addSynonym registers a field with the tag sets.
func (s *Set) addSynonym(val *field, name, position, sets string) {
	if sets == "" {
		return
	}
	other, text, _ := strings.Cut(sets, "=")
	s.synonyms = append(s.synonyms, synonym{val, name, position, other, text})
}

// setSynonyms sets the flags that others are short for. It returns an error if the command line also
// sets them to another value. Flags that an alias of the tool implies do not override the command
// line.
func (s *Set) setSynonyms() error {
	var implied []synonym
	setBy := map[string]string{}
	for _, syn := range s.synonyms {
		other := s.flags.Lookup(syn.other)
		if other == nil || syn.val.v.IsZero() {
			continue
		}
		if syn.name != "" && !s.flags.Changed(syn.name) {
			implied = append(implied, syn)
			continue
		}
		before := other.Value.String()
		switch given := syn.given(); {
		case !other.Changed:
			setBy[syn.other] = given
			if err := s.flags.Set(syn.other, syn.value()); err != nil {
				return fmt.Errorf("%s: %w", given, err)
			}
		case before == syn.value():
		case setBy[syn.other] != "":
			return fmt.Errorf("%s and %s cannot be combined", setBy[syn.other], given)
		default:
			return fmt.Errorf("%s and --%s %s cannot be combined", given, syn.other, before)
		}
	}
	for _, syn := range implied {
		if s.flags.Changed(syn.other) {
			continue
		}
		if err := s.flags.Set(syn.other, syn.value()); err != nil {
			return fmt.Errorf("%s: %w", syn.given(), err)
		}
	}
	return nil
}

// value is the value of the other flag.
func (syn *synonym) value() string {
	if syn.text != "" {
		return syn.text
	}
	return syn.val.String()
}

// given is the flag or argument as in a command line.
func (syn *synonym) given() string {
	if syn.name != "" {
		return "--" + syn.name
	}
	return "argument " + syn.position + " (" + syn.val.String() + ")"
}
