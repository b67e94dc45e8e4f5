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
// required. Values are converted to the types, and those of type char * are strings. Without an
// expression, the value of a return is the return value, which is an int if its type is unknown.
//
// It returns target.ErrSpec and compile.ErrSyntax.
func ParseDist(text string) (*Probe, error) {
	clauses, label := cutLabel(text)
	name, rest := split(clauses)
	signature, rest := cutSignature(rest)
	isBCC := strings.HasPrefix(rest, ":")
	if !isBCC {
		signature, rest = signature+rest, ""
	}
	p, err := Parse(name + signature)
	if err != nil {
		return nil, err
	}
	p.Text, p.Label = text, label
	if isBCC {
		err = p.addTyped(cutOutside(rest[1:], ':'))
	}
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", text, err)
	}
	if len(p.Items) == 0 && p.Spec.Return {
		p.Items, err = compile.ParseItems("$retval")
		p.isDefault = true
	}
	return p, err
}

// addTyped adds the expressions, each with its type, and the condition: TYPES, EXPRESSIONS and
// CONDITION.
func (p *Probe) addTyped(parts []string) (err error) {
	if len(parts) > 3 {
		return fmt.Errorf("%w: want TYPES:EXPRESSIONS[:CONDITION] after the signature", compile.ErrSyntax)
	}
	if len(parts) < 2 {
		return nil
	}
	if p.Items, err = compile.ParseItems(parts[1]); err != nil {
		return err
	}
	types := cutOutside(parts[0], ',')
	if len(types) != len(p.Items) {
		return fmt.Errorf("%w: there are %s, but %s", compile.ErrSyntax, number(len(types), "type"), number(len(p.Items), "expression"))
	}
	for i, kind := range types {
		item := &p.Items[i]
		switch kind = strings.TrimSpace(kind); {
		case item.As != "" || compile.IsComm(item.Expr):
		case strings.HasSuffix(kind, "*"):
			item.As = "str"
		default:
			if item.Expr, err = compile.Cast(kind, item.Expr); err != nil {
				return err
			}
		}
	}
	if len(parts) < 3 {
		return nil
	}
	where, err := compile.Parse(parts[2])
	p.Where = append(p.Where, where)
	return err
}

// cutLabel cuts the label after # or ; from a probe.
func cutLabel(text string) (rest, label string) {
	for _, at := range []byte("#;") {
		if parts := cutOutside(text, at); len(parts) > 1 {
			return parts[0], strings.TrimSpace(text[len(parts[0])+1:])
		}
	}
	return text, ""
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

// Split splits a list at the commas outside of parentheses and strings.
func Split(list string) []string { return cutOutside(list, ',') }

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
