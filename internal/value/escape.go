package value

import (
	"encoding/base64"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// isPlain reports whether c needs no escaping in any output, apart from the quote in JSON.
func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '\\' }

// AppendEscaped appends s for display on a terminal: control bytes, invalid UTF-8,
// invisible and direction-changing characters and backslashes become Go escapes.
func AppendEscaped[T ~string | ~[]byte](b []byte, s T) []byte {
	n := 0 // length of the plain prefix, usually len(s)
	for n < len(s) && isPlain(s[n]) {
		n++
	}
	return appendEscaped(append(b, s[:n]...), s[n:], isPlain)
}

// AppendVisible appends text that may contain untrusted names. It escapes like
// [AppendEscaped], but keeps newlines, tabs and backslashes.
func AppendVisible[T ~string | ~[]byte](b []byte, s T) []byte {
	return appendEscaped(b, s, func(c byte) bool { return isPlain(c) || c == '\\' || c == '\n' || c == '\t' })
}

// appendEscaped appends the bytes for which keep is true literally and escapes the others.
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

// escapeOne appends the first character of s, escaped if necessary, and returns its length in s.
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

// AppendString appends s as a JSON string. Characters that are not printable are escaped,
// so that the output is safe for terminals too. Bytes that are not UTF-8 become U+FFFD;
// [Exact] describes how they are preserved.
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

// stringOne appends the first character of s as in a JSON string and returns its length in s.
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

// AppendBase64 appends s in base64 as a JSON string.
func AppendBase64(b, s []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, s)
	return append(b, '"')
}

// AppendMember appends a member of a JSON object, after a comma unless b ends with the start of the
// object. If the text is not UTF-8, KEY_base64 with the exact bytes follows, as for [Exact].
func AppendMember(b []byte, key, text string) []byte {
	b = AppendString(append(appendKey(b, key), `":`...), text)
	if utf8.ValidString(text) {
		return b
	}
	return AppendBase64(append(appendKey(b, key), `_base64":`...), []byte(text))
}

// appendKey appends the start of a key.
func appendKey(b []byte, key string) []byte {
	return append(append(appendComma(b), '"'), key...)
}

// appendComma appends a comma unless b ends with the start of an object.
func appendComma(b []byte) []byte {
	if b[len(b)-1] == '{' {
		return b
	}
	return append(b, ',')
}

// Quoted is a text in which untrusted strings have been escaped and quoted. Unlike [Bytes] it is not
// escaped again.
type Quoted []byte

func (v *Quoted) AppendText(b []byte) []byte { return append(b, *v...) }
func (v *Quoted) AppendJSON(b []byte) []byte { return AppendString(b, *v) }
func (v *Quoted) Any() any                   { return string(*v) }
func (v *Quoted) Schema() Schema             { return Schema{Type: "string"} }
func (v *Quoted) Absent() bool               { return *v == nil }

// AppendQuoted appends s as a string constant of C. Characters that are not printable, and
// bytes that are not UTF-8, become octal numbers: three digits each, so that a digit can follow.
func AppendQuoted(b, s []byte) []byte {
	b = append(b, '"')
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', s[0])
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b = append(b, s[:n]...)
		default:
			for _, c := range s[:n] {
				b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
			}
		}
		s = s[n:]
	}
	return append(b, '"')
}
