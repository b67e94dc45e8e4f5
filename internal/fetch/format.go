package fetch

import (
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// part is literal text of a format, or a verb with its width.
type part struct {
	text  string
	verb  byte
	width int
	minus bool
	// length is the length modifier, such as "h" or "ll".
	length string
}

// kind returns the C type of the values of the verb, or "" for those of 64 bits and for verbs that
// show the whole register. As in C, "%d" without a length is an int.
func (p *part) kind() string {
	switch p.verb {
	case 'd', 'i':
		return map[string]string{"": "int", "h": "short", "hh": "signed char"}[p.length]
	case 'u', 'x', 'X':
		return map[string]string{"h": "unsigned short", "hh": "unsigned char"}[p.length]
	}
	return ""
}

// parseFormat parses a printf format. Flags are ignored. Length modifiers matter only for values
// whose types are unknown.
func parseFormat(format string) []part {
	var out []part
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 || i == len(format)-1 {
			return append(out, part{text: format})
		}
		if i > 0 {
			out = append(out, part{text: format[:i]})
		}
		format = format[i+1:]
		if format[0] == '%' {
			out = append(out, part{text: "%"})
			format = format[1:]
			continue
		}
		p := part{minus: strings.HasPrefix(format, "-")}
		rest := strings.TrimLeft(format, "-+ #")
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		p.width, _ = strconv.Atoi(rest[:digits]) // none is 0
		p.width = min(p.width, 256)
		length := rest[digits:]
		rest = strings.TrimLeft(length, "hlzjt")
		p.length = length[:len(length)-len(rest)]
		if rest == "" {
			return out
		}
		p.verb, format = rest[0], rest[1:]
		out = append(out, p)
	}
	return out
}

// appendMessage appends the message: the format with the values.
func (v *Values) appendMessage(b []byte, format string) []byte {
	i := 0
	for _, p := range parseFormat(format) {
		if p.verb == 0 {
			b = value.AppendEscaped(b, p.text)
			continue
		}
		cell := v.cell(i, p.verb)
		pad := strings.Repeat(" ", max(0, p.width-len(cell)))
		if p.minus {
			b = append(append(b, cell...), pad...)
		} else {
			b = append(append(b, pad...), cell...)
		}
		i++
	}
	return b
}

// cell returns a value as its verb prints it: without quotes or "0x", which the format can contain.
func (v *Values) cell(i int, verb byte) []byte {
	switch {
	case !v.has(i):
		return []byte("?")
	case v.site.slots[i].Text:
		text, isCut := v.text(i)
		b := value.AppendEscaped(nil, text)
		if isCut {
			b = append(b, "..."...)
		}
		return b
	case verb == 'c':
		return value.AppendEscaped(nil, []byte{byte(v.word(i))})
	}
	b := v.appendValue(nil, i, false)
	if verb == 'x' || verb == 'X' {
		b = []byte(strings.TrimPrefix(string(b), "0x"))
	}
	return b
}
