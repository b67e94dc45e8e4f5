// Package value holds the types that columns are made of. A type carries the
// meaning of its bytes (a path, an errno, a number of nanoseconds), so that a
// tool states it once and every output renders it rightly.
//
// Values know nothing of eBPF and nothing of the tools.
package value

import (
	"fmt"
	"reflect"
)

// Value is one cell of a row. Its methods append to b and return it, so that
// rendering allocates nothing.
type Value interface {
	// AppendText appends the cell for people: untrusted bytes are escaped.
	AppendText(b []byte) []byte

	// AppendJSON appends the JSON value.
	AppendJSON(b []byte) []byte

	// Any returns the value for an expression, of the type that Schema gives: a bool,
	// an int, a float64, a string, a []string, or a time.Time for a date-time.
	Any() any

	// Schema is the JSON Schema of what AppendJSON appends.
	Schema() Schema
}

// Schema is the part of JSON Schema that values need.
type Schema struct {
	Type    string   `json:"type"`
	Format  string   `json:"format,omitempty"`
	Minimum *int64   `json:"minimum,omitempty"`
	Items   *Schema  `json:"items,omitempty"`
	Enum    []string `json:"enum,omitempty"`
	// Properties are those of an object, Required the keys that it always has.
	Properties  map[string]Schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Description string            `json:"description,omitempty"`
}

// Optional is implemented by values that may be absent. An absent value is left
// out of JSON and is "-" in text.
type Optional interface{ Absent() bool }

// Lines is implemented by values that text shows in lines of their own below the row,
// and not in a cell.
type Lines interface {
	// AppendLines appends the lines, each with its end.
	AppendLines(b []byte) []byte
}

// Exact is implemented by values made of bytes that need not be UTF-8. Where
// they are not, JSON has a second key, KEY_base64, with the bytes themselves.
type Exact interface {
	// Valid reports whether AppendJSON is exact.
	Valid() bool
	// AppendBase64 appends the JSON value of the second key.
	AppendBase64(b []byte) []byte
}

// Of returns the Value behind a pointer: the pointer itself when it is one, or
// an adapter for a plain bool, integer, float or string.
func Of(ptr any) (Value, error) {
	switch p := ptr.(type) {
	case Value:
		return p, nil
	case *bool:
		return (*flag)(p), nil
	case *uint8:
		return unsigned[uint8]{p}, nil
	case *uint16:
		return unsigned[uint16]{p}, nil
	case *uint32:
		return unsigned[uint32]{p}, nil
	case *uint64:
		return unsigned[uint64]{p}, nil
	case *int32:
		return signed[int32]{p}, nil
	case *int64:
		return signed[int64]{p}, nil
	case *float64:
		return (*float)(p), nil
	case *string:
		return (*text)(p), nil
	case *[]byte:
		return (*Bytes)(p), nil
	}
	return nil, fmt.Errorf("render %s: not a value", reflect.TypeOf(ptr))
}

func minimum(n int64) *int64 { return &n }
