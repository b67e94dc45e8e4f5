package execsnoop

import (
	"bytes"

	"github.com/corescope/corescope/internal/value"
)

// command is what was given to exec: the file, and the arguments behind the first.
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

// contains tells whether the command, with blanks between its arguments, contains text.
func (c *command) contains(text string) bool {
	return bytes.Contains(bytes.ReplaceAll(c.List, []byte{0}, []byte{' '}), []byte(text))
}

// given returns the arguments behind argv[0]. An interpreter's arguments come before the
// file that it interprets; the caller's own follow.
func given(args value.List, file []byte, interpreted bool) value.List {
	_, behind, _ := bytes.Cut(args, []byte{0})
	if !interpreted {
		return behind
	}
	for rest := behind; len(rest) > 0; {
		var arg []byte
		arg, rest, _ = bytes.Cut(rest, []byte{0})
		if bytes.Equal(arg, file) {
			return rest
		}
	}
	return behind
}

// first returns the first n strings of a list, and whether there are more.
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
