package flags

import "strings"

// addBare registers the value of a flag that is given without one.
func (s *Set) addBare(long, short, value string) {
	if value == "" {
		return
	}
	s.bare["--"+long] = value
	if short != "" {
		s.bare["-"+short] = value
	}
}

// withValues adds values to flags that are given without one: at the end of the command line, before
// another flag, or with an empty text.
func (s *Set) withValues(args []string) []string {
	if len(s.bare) == 0 {
		return args
	}
	out := make([]string, len(args))
	copy(out, args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value := s.bare[strings.TrimSuffix(arg, "=")]; strings.HasSuffix(arg, "=") {
			out[i] = arg + value
		} else if value != "" && (i == len(args)-1 || strings.HasPrefix(args[i+1], "-")) {
			out[i] = arg + "=" + value
		}
	}
	return out
}
