package fetch

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
)

// ParseDist reads a probe, also as BCC's argdist writes it:
//
//	p::__kmalloc(u64 size):u64:size:size > 16#sizes
//
// that is signature, types, expressions, a condition and a label, of which only the first
// must be there. The types say what is a string.
//
// Returns target.ErrSpec and compile.ErrSyntax.
func ParseDist(text string) (*Probe, error) {
	clauses, label := cutLabel(text)
	name, rest := split(clauses)
	signature, rest := cutSignature(rest)
	if !strings.HasPrefix(rest, ":") {
		p, err := Parse(clauses)
		if err == nil {
			p.Label = label
		}
		return p, err
	}
	parts := cutOutside(rest[1:], ':')
	if len(parts) > 3 {
		return nil, fmt.Errorf("parse %q: %w: behind the signature are types, expressions and a condition", text, compile.ErrSyntax)
	}
	p, err := Parse(name + signature + items(parts) + condition(parts))
	if err == nil {
		p.Text, p.Label = text, label
	}
	return p, err
}

// items are the expressions in parentheses, each as its type says.
func items(parts []string) string {
	if len(parts) < 2 {
		return ""
	}
	types := cutOutside(parts[0], ',')
	var out []string
	for i, e := range cutOutside(parts[1], ',') {
		if i < len(types) && strings.HasSuffix(strings.TrimSpace(types[i]), "*") {
			e += ":str"
		}
		out = append(out, e)
	}
	return "(" + strings.Join(out, ",") + ")"
}

func condition(parts []string) string {
	if len(parts) < 3 {
		return ""
	}
	return " if " + parts[2]
}

func cutLabel(text string) (rest, label string) {
	parts := cutOutside(text, '#')
	if len(parts) < 2 {
		return text, ""
	}
	return parts[0], strings.Join(parts[1:], "#")
}

// cutSignature cuts the first pair of parentheses off.
func cutSignature(text string) (signature, rest string) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[:i+1], text[i+1:]
		}
	}
	return text, ""
}

// cutOutside cuts at a character, but not in parentheses and strings.
func cutOutside(text string, at byte) []string {
	var out []string
	depth, start, inString := 0, 0, false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			inString = !inString
		case inString:
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == at && depth == 0:
			out = append(out, text[start:i])
			start = i + 1
		}
	}
	return append(out, text[start:])
}

// IsNumber tells that the only value of a site is a number.
func (s *Site) IsNumber() bool {
	if len(s.slots) != 1 || s.slots[0].Text {
		return false
	}
	_, isPointer := btf.UnderlyingType(s.slots[0].Type).(*btf.Pointer)
	return !isPointer
}
