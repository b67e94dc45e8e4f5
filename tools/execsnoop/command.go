package execsnoop

import (
	"bytes"
	"regexp"

	"github.com/corescope/corescope/internal/value"
)

// command contains the file given to exec and the arguments after argv[0].
type command struct {
	value.List
	quote, cut bool
}

func (c *command) set(file []byte, args value.List) {
	c.List = c.List[:0]
	if file != nil {
		c.List = append(append(c.List, file...), 0)
	}
	c.List = append(c.List, args...)
}

// AppendText appends the command as libbpf-tools prints it.
func (c *command) AppendText(b []byte) []byte {
	between := ""
	for s := range c.All {
		b = append(b, between...)
		between = " "
		if c.quote {
			b = appendQuoted(b, s)
		} else {
			b = value.AppendEscaped(b, s)
		}
	}
	if c.cut {
		b = append(b, " ..."...)
	}
	return b
}

func appendQuoted(b, s []byte) []byte {
	b = append(b, '"')
	for i, part := range bytes.Split(s, []byte(`"`)) {
		if i > 0 {
			b = append(b, '\\', '"')
		}
		b = value.AppendEscaped(b, part)
	}
	return append(b, '"')
}

// matches reports whether the command, its arguments separated by spaces, matches.
func (c *command) matches(line *regexp.Regexp) bool {
	return line.Match(bytes.ReplaceAll(bytes.TrimSuffix(c.List, []byte{0}), []byte{0}, []byte{' '}))
}

// callerArgs returns the arguments of the caller after argv[0]. For a script they follow the
// arguments of the interpreter and the file.
func callerArgs(args value.List, file []byte, interpreted bool) value.List {
	_, tail, _ := bytes.Cut(args, []byte{0})
	if !interpreted {
		return tail
	}
	for rest := tail; len(rest) > 0; {
		var arg []byte
		arg, rest, _ = bytes.Cut(rest, []byte{0})
		if bytes.Equal(arg, file) {
			return rest
		}
	}
	return tail
}

// first returns the first n strings of a list and reports whether the list has more.
func first(l value.List, n int) (value.List, bool) {
	end := 0
	for ; n > 0 && end < len(l); n-- {
		i := bytes.IndexByte(l[end:], 0)
		if i < 0 {
			return l, false
		}
		end += i + 1
	}
	return l[:end], end < len(l)
}
