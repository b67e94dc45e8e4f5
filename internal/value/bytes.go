package value

import (
	"bytes"
	"unicode/utf8"
)

// text is a string of Go, which may come from a path, a symbol or another untrusted source.
type text string

func (v *text) AppendText(b []byte) []byte   { return AppendEscaped(b, string(*v)) }
func (v *text) AppendJSON(b []byte) []byte   { return AppendString(b, string(*v)) }
func (v *text) Any() any                     { return string(*v) }
func (v *text) Schema() Schema               { return Schema{Type: "string"} }
func (v *text) Absent() bool                 { return *v == "" }
func (v *text) Valid() bool                  { return utf8.ValidString(string(*v)) }
func (v *text) AppendBase64(b []byte) []byte { return AppendBase64(b, []byte(*v)) }

// Bytes is an untrusted string from the kernel or a task, such as a path or a host name.
// It often points into a buffer that the next event overwrites.
type Bytes []byte

// BytesOf returns the first n bytes of b, or all if b is shorter; nil if n is 0.
func BytesOf(b []byte, n uint8) Bytes {
	if n == 0 {
		return nil
	}
	return b[:min(int(n), len(b))]
}

func (v *Bytes) AppendText(b []byte) []byte   { return AppendEscaped(b, *v) }
func (v *Bytes) AppendJSON(b []byte) []byte   { return AppendString(b, *v) }
func (v *Bytes) Any() any                     { return string(*v) }
func (v *Bytes) Schema() Schema               { return Schema{Type: "string"} }
func (v *Bytes) Absent() bool                 { return *v == nil }
func (v *Bytes) Valid() bool                  { return utf8.Valid(*v) }
func (v *Bytes) AppendBase64(b []byte) []byte { return AppendBase64(b, *v) }

// Part is the start of an untrusted text, or all of it. Text shows ... after a part.
type Part struct {
	Bytes
	IsCut bool
}

func (v *Part) AppendText(b []byte) []byte {
	b = v.Bytes.AppendText(b)
	if v.IsCut {
		b = append(b, "..."...)
	}
	return b
}

// Comm is the name of a task as the kernel stores it: at most 15 bytes and a NUL.
type Comm [16]byte

func (v *Comm) bytes() []byte {
	if n := bytes.IndexByte(v[:], 0); n >= 0 {
		return v[:n]
	}
	return v[:]
}

// String returns the bytes of the name, unescaped.
func (v *Comm) String() string { return string(v.bytes()) }

func (v *Comm) AppendText(b []byte) []byte   { return AppendEscaped(b, v.bytes()) }
func (v *Comm) AppendJSON(b []byte) []byte   { return AppendString(b, v.bytes()) }
func (v *Comm) Any() any                     { return v.String() }
func (v *Comm) Schema() Schema               { return Schema{Type: "string"} }
func (v *Comm) Valid() bool                  { return utf8.Valid(v.bytes()) }
func (v *Comm) AppendBase64(b []byte) []byte { return AppendBase64(b, v.bytes()) }

// List is a sequence of NUL-terminated strings, such as an argument vector.
type List []byte

// All iterates over the strings.
func (v List) All(yield func([]byte) bool) {
	for rest := []byte(v); len(rest) > 0; {
		var s []byte
		if n := bytes.IndexByte(rest, 0); n >= 0 {
			s, rest = rest[:n], rest[n+1:]
		} else {
			s, rest = rest, nil
		}
		if !yield(s) {
			return
		}
	}
}

func (v *List) AppendText(b []byte) []byte {
	return v.appendJoined(b, ' ', AppendEscaped[[]byte])
}

func (v *List) appendArray(b []byte, appendItem func(b, s []byte) []byte) []byte {
	return append(v.appendJoined(append(b, '['), ',', appendItem), ']')
}

func (v *List) appendJoined(b []byte, sep byte, appendItem func(b, s []byte) []byte) []byte {
	first := true
	for s := range v.All {
		if !first {
			b = append(b, sep)
		}
		b, first = appendItem(b, s), false
	}
	return b
}

// AppendCell appends a JSON array of the strings with the escapes of text. Unlike the text, in
// which spaces separate the strings, it can be parsed.
func (v *List) AppendCell(b []byte) []byte {
	return v.appendArray(b, appendQuotedText)
}

// appendQuotedText appends the escaped text of s as a JSON string.
func appendQuotedText(b, s []byte) []byte {
	b = append(b, '"')
	start := len(b)
	b = AppendEscaped(b, s)
	end := len(b)
	for _, c := range b[start:end] {
		if c == '"' || c == '\\' {
			b = append(b, 0)
		}
	}
	// Moves the text to the end, backwards, so that no byte is overwritten before it is moved.
	for src, dst := end-1, len(b)-1; dst > src; src, dst = src-1, dst-1 {
		b[dst] = b[src]
		if b[src] == '"' || b[src] == '\\' {
			dst--
			b[dst] = '\\'
		}
	}
	return append(b, '"')
}

func (v *List) AppendJSON(b []byte) []byte   { return v.appendArray(b, AppendString[[]byte]) }
func (v *List) AppendBase64(b []byte) []byte { return v.appendArray(b, AppendBase64) }
func (v *List) Valid() bool                  { return utf8.Valid(*v) }

func (v *List) Any() any {
	all := []string{}
	for s := range v.All {
		all = append(all, string(s))
	}
	return all
}

func (v *List) Schema() Schema {
	return Schema{Type: "array", Items: &Schema{Type: "string"}}
}

// Name is an untrusted string that is comparable and safe to keep, unlike [Bytes]: a file
// name or a path. It is absent if it is empty.
type Name string

// NameOf returns the bytes of b up to the first NUL.
func NameOf(b []byte) Name {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return Name(b)
}

func (v *Name) AppendText(b []byte) []byte   { return AppendEscaped(b, *v) }
func (v *Name) AppendJSON(b []byte) []byte   { return AppendString(b, *v) }
func (v *Name) Any() any                     { return string(*v) }
func (v *Name) Schema() Schema               { return Schema{Type: "string"} }
func (v *Name) Absent() bool                 { return *v == "" }
func (v *Name) Valid() bool                  { return utf8.ValidString(string(*v)) }
func (v *Name) AppendBase64(b []byte) []byte { return AppendBase64(b, []byte(*v)) }
