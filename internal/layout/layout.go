// Package layout checks that Go structs have the memory layout of the C structs that BPF
// programs send, and copies samples into them.
package layout

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf/btf"
)

// ErrMismatch is returned if the layout of a Go type differs from that of its C type.
var ErrMismatch = errors.New("layouts differ")

// Check compares the Go struct t with the C struct s: name, offset, size and signedness of
// every member. Names are compared ignoring case and underscores; the tag `btf:"name"`
// overrides the name, and blank Go fields match padding. The C struct may end with a char
// array that t lacks: the variable-length tail of an event. A type that passes the check
// contains no pointers.
//
// Returns ErrMismatch.
func Check(s *btf.Struct, t reflect.Type) error {
	members := s.Members
	if n := len(members); n > 0 && isTail(members[n-1], t) {
		members = members[:n-1]
	} else if uintptr(s.Size) != t.Size() {
		return fmt.Errorf("struct %s has %d bytes, %s %d: %w", s.Name, s.Size, t, t.Size(), ErrMismatch)
	}
	if len(members) != t.NumField() {
		return fmt.Errorf("struct %s has %d members, %s %d: %w", s.Name, len(members), t, t.NumField(), ErrMismatch)
	}
	for i, m := range members {
		if err := checkField(m, t.Field(i)); err != nil {
			return fmt.Errorf("struct %s: %w", s.Name, err)
		}
	}
	return nil
}

// Tail returns the size of the char array at the end of the C struct that t lacks, 0 if there is none.
func Tail(s *btf.Struct, t reflect.Type) int {
	if n := len(s.Members); n > 0 && isTail(s.Members[n-1], t) {
		size, _ := btf.Sizeof(s.Members[n-1].Type) // an array of char
		return size
	}
	return 0
}

func isTail(m btf.Member, t reflect.Type) bool {
	array, ok := btf.UnderlyingType(m.Type).(*btf.Array)
	if !ok || uintptr(m.Offset.Bytes()) != t.Size() {
		return false
	}
	size, err := btf.Sizeof(array.Type)
	return err == nil && size == 1
}

func checkField(m btf.Member, f reflect.StructField) error {
	if name := fieldName(f); f.Name != "_" && name != fold(m.Name) {
		return fmt.Errorf("member %s is %s in Go: %w", m.Name, f.Name, ErrMismatch)
	}
	if uintptr(m.Offset.Bytes()) != f.Offset || m.BitfieldSize != 0 {
		return fmt.Errorf("member %s is at bit %d, in Go at byte %d: %w", m.Name, m.Offset, f.Offset, ErrMismatch)
	}
	if err := checkType(m.Type, f.Type); err != nil {
		return fmt.Errorf("member %s: %w", m.Name, err)
	}
	return nil
}

// checkType compares sizes, and recursively structs and arrays. A Go byte array matches
// any C type of its size, and a Go struct with one field matches the type of that field.
func checkType(c btf.Type, t reflect.Type) error {
	size, err := btf.Sizeof(c)
	if err != nil {
		return fmt.Errorf("size %s: %w", c, err)
	}
	if uintptr(size) != t.Size() {
		return fmt.Errorf("%d bytes, in Go %d: %w", size, t.Size(), ErrMismatch)
	}
	if t.Kind() == reflect.Array && t.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	under := btf.UnderlyingType(c)
	if s, ok := under.(*btf.Struct); ok && t.Kind() == reflect.Struct {
		return Check(s, t)
	}
	if t.Kind() == reflect.Struct && t.NumField() == 1 {
		return checkType(c, t.Field(0).Type)
	}
	switch under := under.(type) {
	case *btf.Array:
		if t.Kind() == reflect.Array {
			return checkType(under.Type, t.Elem())
		}
	case *btf.Int:
		if isInteger(under, t.Kind()) {
			return nil
		}
	case *btf.Enum:
		if t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 {
			return nil
		}
	case *btf.Pointer: // a kernel address: a plain number in Go
		if t.Kind() == reflect.Uint64 {
			return nil
		}
	}
	return fmt.Errorf("%s is %s in Go: %w", c, t, ErrMismatch)
}

// isInteger reports whether a Go kind has the signedness of the C integer. Bools count as
// unsigned.
func isInteger(c *btf.Int, k reflect.Kind) bool {
	if k >= reflect.Int && k <= reflect.Int64 {
		return c.Encoding == btf.Signed
	}
	return (k == reflect.Bool || k >= reflect.Uint && k <= reflect.Uint64) && c.Encoding != btf.Signed
}

func fieldName(f reflect.StructField) string {
	if name := f.Tag.Get("btf"); name != "" {
		return fold(name)
	}
	return fold(f.Name)
}

func fold(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// Wire returns the part of a row type that is copied from the kernel: the first field if
// it is embedded and not a Task, else the whole type.
func Wire(row reflect.Type) reflect.Type {
	if row.NumField() > 0 && row.Field(0).Anonymous && row.Field(0).Name != "Task" {
		return row.Field(0).Type
	}
	return row
}

// ErrShort is returned for a sample shorter than the fixed part of the event.
var ErrShort = errors.New("sample too short")

// Decoder copies samples into a row.
type Decoder struct {
	fixed []byte
}

// NewDecoder returns a decoder into *row, whose wire type must not contain pointers.
func NewDecoder(row any) *Decoder {
	v := reflect.ValueOf(row)
	size := Wire(v.Type().Elem()).Size()
	return &Decoder{unsafe.Slice((*byte)(v.UnsafePointer()), size)}
}

// Decode copies the fixed part and returns the tail, which points into sample. Samples of a
// perf buffer are padded by up to 7 bytes, so the event itself must contain the length of
// its tail.
//
// Returns ErrShort.
func (d *Decoder) Decode(sample []byte) (tail []byte, err error) {
	if len(sample) < len(d.fixed) {
		return nil, fmt.Errorf("decode %d of %d bytes: %w", len(sample), len(d.fixed), ErrShort)
	}
	n := copy(d.fixed, sample)
	return sample[n:], nil
}

// Size returns the size of the fixed part in bytes.
func (d *Decoder) Size() int { return len(d.fixed) }
