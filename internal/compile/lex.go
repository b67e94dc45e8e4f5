package compile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSyntax is returned for a text that is not a valid expression.
var ErrSyntax = errors.New("syntax")

// token is a name, number, string or operator.
type token struct {
	kind tokenKind
	text string // unquoted for strings
	num  uint64
	pos  int // offset in bytes
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenNumber
	tokenString
	tokenOperator
)

// operators lists longer operators before their prefixes.
var operators = []string{
	"->", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>",
	"+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "(", ")", "[", "]", ".", ",", ":", "@",
}

// lex splits a text into tokens, the last of which is tokenEnd.
func lex(text string) ([]token, error) {
	var out []token
	for pos := 0; ; {
		pos += len(text[pos:]) - len(strings.TrimLeft(text[pos:], " \t\r\n"))
		if pos == len(text) {
			return append(out, token{kind: tokenEnd, pos: pos}), nil
		}
		t, n, err := next(text[pos:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w, at %q", ErrSyntax, err, text[pos:])
		}
		t.pos = pos
		out = append(out, t)
		pos += n
	}
}

// next returns the first token of text and its length.
func next(text string) (token, int, error) {
	switch c := text[0]; {
	case isLetter(c):
		n := span(text, func(c byte) bool { return isLetter(c) || isDigit(c) })
		return token{kind: tokenName, text: text[:n]}, n, nil
	case isDigit(c):
		return number(text)
	case c == '"':
		return quoted(text)
	case c == '\'':
		return character(text)
	}
	for _, op := range operators {
		if strings.HasPrefix(text, op) {
			return token{kind: tokenOperator, text: op}, len(op), nil
		}
	}
	return token{}, 0, errors.New("unexpected character")
}

func number(text string) (token, int, error) {
	n := span(text, func(c byte) bool { return isLetter(c) || isDigit(c) })
	digits := strings.TrimRight(text[:n], "uUlL")
	num, err := strconv.ParseUint(digits, 0, 64)
	if err != nil || strings.Contains(digits, "_") {
		return token{}, 0, fmt.Errorf("%q is not a number", text[:n])
	}
	return token{kind: tokenNumber, text: text[:n], num: num}, n, nil
}

func quoted(text string) (token, int, error) {
	prefix, err := strconv.QuotedPrefix(text)
	if err != nil {
		return token{}, 0, errors.New("unterminated string")
	}
	s, err := strconv.Unquote(prefix)
	return token{kind: tokenString, text: s}, len(prefix), err
}

func character(text string) (token, int, error) {
	c, _, rest, err := strconv.UnquoteChar(text[1:], '\'')
	if err != nil || !strings.HasPrefix(rest, "'") || c > 0xff {
		return token{}, 0, errors.New("invalid character literal")
	}
	n := len(text) - len(rest) + 1
	return token{kind: tokenNumber, text: text[:n], num: uint64(c)}, n, nil
}

// span returns the length of the longest prefix of s whose bytes all satisfy match.
func span(s string, match func(byte) bool) int {
	for i := range len(s) {
		if !match(s[i]) {
			return i
		}
	}
	return len(s)
}

func isLetter(c byte) bool {
	return c == '_' || c == '$' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
