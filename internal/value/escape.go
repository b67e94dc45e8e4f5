package value

import (
	"encoding/base64"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// isPlain tells the bytes that no output escapes, but for the quote.
func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '\\' }

// AppendEscaped appends s so that a terminal shows it and does nothing else:
// control bytes, bytes that are not UTF-8, invisible and direction-changing
// characters and the backslash itself become Go escapes.
func AppendEscaped[T ~string | ~[]byte](b []byte, s T) []byte {
	n := 0 // nearly always, all of it
	for n < len(s) && isPlain(s[n]) {
		n++
	}
	return appendEscaped(append(b, s[:n]...), s[n:], isPlain)
}

// AppendVisible appends lines of text in which names of others may stand: what would do
// something to a terminal, but for the end of a line and the tab, becomes a Go escape.
func AppendVisible[T ~string | ~[]byte](b []byte, s T) []byte {
	return appendEscaped(b, s, func(c byte) bool { return isPlain(c) || c == '\\' || c == '\n' || c == '\t' })
}

// appendEscaped appends the bytes that are kept as they are, and escapes of the others.
func appendEscaped[T ~string | ~[]byte](b []byte, s T, keep func(byte) bool) []byte {
	for i := 0; i < len(s); {
		if keep(s[i]) {
			b = append(b, s[i])
			i++
			continue
		}
		n := 0
		b, n = escapeOne(b, string(s[i:min(i+utf8.UTFMax, len(s))]))
		i += n
	}
	return b
}

func escapeOne(b []byte, s string) ([]byte, int) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n == 1:
		return append(b, '\\', 'x', hex[s[0]>>4], hex[s[0]&15]), n
	case r == '\\':
		return append(b, '\\', '\\'), n
	case unicode.IsPrint(r):
		return append(b, s[:n]...), n
	}
	start := len(b)
	b = strconv.AppendQuoteRuneToASCII(b, r)
	return append(b[:start], b[start+1:len(b)-1]...), n
}

// AppendString appends s as a JSON string, all ASCII but for characters that can be
// seen: what would do something to a terminal is escaped here too. Bytes that are not
// UTF-8 become U+FFFD; see [Exact] for how they are kept.
func AppendString[T ~string | ~[]byte](b []byte, s T) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		if isPlain(s[i]) && s[i] != '"' {
			b = append(b, s[i])
			i++
			continue
		}
		n := 0
		b, n = stringOne(b, string(s[i:min(i+utf8.UTFMax, len(s))]))
		i += n
	}
	return append(b, '"')
}

func stringOne(b []byte, s string) ([]byte, int) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n == 1:
		b = append(b, `\ufffd`...)
	case r == '"' || r == '\\':
		b = append(b, '\\', s[0])
	case r == '\n':
		b = append(b, '\\', 'n')
	case r == '\t':
		b = append(b, '\\', 't')
	case unicode.IsPrint(r):
		b = append(b, s[:n]...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		b = appendUnicode(appendUnicode(b, high), low)
	default:
		b = appendUnicode(b, r)
	}
	return b, n
}

// appendUnicode appends \uXXXX.
func appendUnicode(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

func appendBase64(b, s []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, s)
	return append(b, '"')
}
