// Package value defines the types of columns. A type states what its bytes mean (a path, an
// errno, a number of nanoseconds) and how text, JSON and expressions represent it.
//
// The package depends neither on BPF nor on the tools.
package value

import (
	"fmt"
	"reflect"
)

// Value is one cell of a row. Its methods append to b and return the result, so that
// rendering does not allocate.
type Value interface {
	// AppendText appends the cell for text output, with untrusted bytes escaped.
	AppendText(b []byte) []byte

	// AppendJSON appends the JSON value.
	AppendJSON(b []byte) []byte

	// Any returns the value for expressions, of the type that Schema describes: bool, int,
	// float64, string, []string, or time.Time for a date-time.
	Any() any

	// Schema returns the JSON Schema of the output of AppendJSON.
	Schema() Schema
}

// Schema is the subset of JSON Schema that values need.
type Schema struct {
	Type    string   `json:"type"`
	Format  string   `json:"format,omitempty"`
	Minimum *int64   `json:"minimum,omitempty"`
	Items   *Schema  `json:"items,omitempty"`
	Enum    []string `json:"enum,omitempty"`
	// Properties describes the members of an object, Required lists those always present.
	Properties  map[string]Schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Description string            `json:"description,omitempty"`
}

// Optional is implemented by values that may be absent. An absent value is omitted from
// JSON and is "-" in text.
type Optional interface{ Absent() bool }

// Lines is implemented by values that text output prints as separate lines below the row
// instead of in a cell.
type Lines interface {
	// AppendLines appends the lines, each terminated by a newline.
	AppendLines(b []byte) []byte
}

// Cell is implemented by values whose cell in CSV differs from their text.
type Cell interface {
	// AppendCell appends the cell, without the quotation of CSV.
	AppendCell(b []byte) []byte
}

// Exact is implemented by values whose bytes may be invalid UTF-8. In that case JSON has a
// second key, KEY_base64, with the exact bytes.
type Exact interface {
	// Valid reports whether AppendJSON is exact.
	Valid() bool
	// AppendBase64 appends the JSON value of the second key.
	AppendBase64(b []byte) []byte
}

// Of returns ptr if it is a Value, else an adapter for a pointer to a bool, integer, float,
// string or byte slice.
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
	return nil, fmt.Errorf("render %s: unsupported type", reflect.TypeOf(ptr))
}

func minimum(n int64) *int64 { return &n }
