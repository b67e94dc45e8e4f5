package value

import (
	"bytes"
	"unicode/utf8"
)

type text string

func (v *text) AppendText(b []byte) []byte { return AppendEscaped(b, string(*v)) }
func (v *text) AppendJSON(b []byte) []byte { return AppendString(b, string(*v)) }
func (v *text) Any() any                   { return string(*v) }
func (v *text) Schema() Schema             { return Schema{Type: "string"} }
func (v *text) Absent() bool               { return *v == "" }

// Bytes is a string of the kernel's or of a task's: a path, a name, a host.
// It often points into a buffer that the next event overwrites.
type Bytes []byte

// BytesOf are the first n bytes in a field, nil for 0.
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
func (v *Bytes) AppendBase64(b []byte) []byte { return appendBase64(b, *v) }

// Comm is a task's name as the kernel keeps it: 15 bytes and a NUL at most.
type Comm [16]byte

func (v *Comm) bytes() []byte {
	if n := bytes.IndexByte(v[:], 0); n >= 0 {
		return v[:n]
	}
	return v[:]
}

// String returns the name's own bytes.
func (v *Comm) String() string { return string(v.bytes()) }

func (v *Comm) AppendText(b []byte) []byte   { return AppendEscaped(b, v.bytes()) }
func (v *Comm) AppendJSON(b []byte) []byte   { return AppendString(b, v.bytes()) }
func (v *Comm) Any() any                     { return v.String() }
func (v *Comm) Schema() Schema               { return Schema{Type: "string"} }
func (v *Comm) Valid() bool                  { return utf8.Valid(v.bytes()) }
func (v *Comm) AppendBase64(b []byte) []byte { return appendBase64(b, v.bytes()) }

// List is strings one after another, each ended by a NUL: an argument vector.
type List []byte

// All calls yield with each string.
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

func (v *List) appendArray(b []byte, one func(b, s []byte) []byte) []byte {
	return append(v.appendJoined(append(b, '['), ',', one), ']')
}

func (v *List) appendJoined(b []byte, sep byte, one func(b, s []byte) []byte) []byte {
	first := true
	for s := range v.All {
		if !first {
			b = append(b, sep)
		}
		b, first = one(b, s), false
	}
	return b
}

func (v *List) AppendJSON(b []byte) []byte   { return v.appendArray(b, AppendString[[]byte]) }
func (v *List) AppendBase64(b []byte) []byte { return v.appendArray(b, appendBase64) }
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

// Name is a string of the kernel's or of a task's that can be compared: the name of a
// file, a path. It is absent when it is empty.
type Name string

// NameOf returns the name in a field of the kernel's, which ends at the first NUL.
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
func (v *Name) AppendBase64(b []byte) []byte { return appendBase64(b, []byte(*v)) }
