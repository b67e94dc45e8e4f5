package fetch

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
)

// ParseDist parses a probe, also in the syntax of BCC's argdist:
//
//	p::__kmalloc(u64 size):u64:size:size > 16#sizes
//
// These are the signature, types, expressions, a condition and a label; only the signature is
// required. The types determine which values are strings.
//
// It returns target.ErrSpec and compile.ErrSyntax.
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
		return nil, fmt.Errorf("parse %q: %w: want TYPES:EXPRESSIONS[:CONDITION] after the signature", text, compile.ErrSyntax)
	}
	p, err := Parse(name + signature + items(parts) + condition(parts))
	if err == nil {
		p.Text, p.Label = text, label
	}
	return p, err
}

// items parses the expressions, each with its type.
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

// cutSignature splits the text after the first pair of parentheses.
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

// cutOutside splits the text at a character outside of parentheses and strings.
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

// IsNumber reports whether the site has a single value that is a number.
func (s *Site) IsNumber() bool {
	if len(s.slots) != 1 || s.slots[0].Text {
		return false
	}
	_, isPointer := btf.UnderlyingType(s.slots[0].Type).(*btf.Pointer)
	return !isPointer
}
