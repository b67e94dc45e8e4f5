package value

import (
	"encoding/base64"
	"strconv"
	"unicode"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// AppendEscaped appends s so that a terminal shows it and does nothing else:
// control bytes, bytes that are not UTF-8, invisible and direction-changing
// characters and the backslash itself become Go escapes.
func AppendEscaped[T ~string | ~[]byte](b []byte, s T) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '\\' && c != 0x7f {
			b = append(b, c)
			i++
			continue
		}
		n := escapeOne(&b, string(s[i:min(i+utf8.UTFMax, len(s))]))
		i += n
	}
	return b
}

func escapeOne(b *[]byte, s string) int {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		*b = append(*b, '\\', 'x', hex[s[0]>>4], hex[s[0]&15])
		return 1
	case r == '\\':
		*b = append(*b, '\\', '\\')
	case unicode.IsPrint(r):
		*b = append(*b, s[:n]...)
	default:
		quoted := strconv.AppendQuoteRuneToASCII(nil, r)
		*b = append(*b, quoted[1:len(quoted)-1]...)
	}
	return n
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD; see [Exact] for how they are kept.
func AppendString[T ~string | ~[]byte](b []byte, s T) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != 0x7f {
			b = append(b, c)
			i++
			continue
		}
		i += stringOne(&b, string(s[i:min(i+utf8.UTFMax, len(s))]))
	}
	return append(b, '"')
}

func stringOne(b *[]byte, s string) int {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		*b = append(*b, `\ufffd`...)
		return 1
	case r == '"' || r == '\\':
		*b = append(*b, '\\', s[0])
	case r == '\n':
		*b = append(*b, '\\', 'n')
	case r == '\t':
		*b = append(*b, '\\', 't')
	// Control characters, C1 among them, never reach a terminal even in JSON.
	case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029':
		*b = append(*b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	default:
		*b = append(*b, s[:n]...)
	}
	return n
}

func appendBase64(b, s []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, s)
	return append(b, '"')
}
