// Package layout compares the Go types that events are copied into with the
// types that the BPF objects send, and does the copying.
package layout

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf/btf"
)

// ErrMismatch is returned when a Go type is not laid out as its C type.
var ErrMismatch = errors.New("layouts differ")

// Check compares the Go struct t with the C struct s: every member's name,
// offset, size and sign. Names match without case and underscores, or by the
// tag `btf:"name"`; blank Go fields match padding. The C struct may end with an array
// of char that t does not have, whose used part is sent behind the fixed part.
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
	if uintptr(m.Offset.Bytes()) != f.Offset {
		return fmt.Errorf("member %s is at %d, in Go at %d: %w", m.Name, m.Offset.Bytes(), f.Offset, ErrMismatch)
	}
	size, err := btf.Sizeof(m.Type)
	if err != nil {
		return fmt.Errorf("size member %s: %w", m.Name, err)
	}
	if uintptr(size) != f.Type.Size() {
		return fmt.Errorf("member %s has %d bytes, in Go %d: %w", m.Name, size, f.Type.Size(), ErrMismatch)
	}
	switch under := btf.UnderlyingType(m.Type).(type) {
	case *btf.Struct:
		if f.Type.Kind() == reflect.Struct {
			return Check(under, f.Type)
		}
	case *btf.Int:
		if signed(f.Type.Kind()) != (under.Encoding == btf.Signed) {
			return fmt.Errorf("member %s differs in sign: %w", m.Name, ErrMismatch)
		}
	}
	return nil
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

func signed(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Int64 }

// Wire is the part of a row type that is copied from the kernel: its first
// field, which is embedded, or the whole type when that is not a struct with one.
func Wire(row reflect.Type) reflect.Type {
	if row.NumField() > 0 && row.Field(0).Anonymous && row.Field(0).Name != "Task" {
		return row.Field(0).Type
	}
	return row
}

// ErrShort is returned for a sample with fewer bytes than the fixed part.
var ErrShort = errors.New("sample too short")

// Decoder copies samples into one row.
type Decoder struct {
	fixed []byte
}

// NewDecoder returns a decoder into *row, whose wire type must hold no pointers.
func NewDecoder(row any) *Decoder {
	v := reflect.ValueOf(row)
	size := Wire(v.Type().Elem()).Size()
	return &Decoder{unsafe.Slice((*byte)(v.UnsafePointer()), size)}
}

// Decode copies the fixed part and returns the tail, which points into sample.
//
// Returns ErrShort.
func (d *Decoder) Decode(sample []byte) (tail []byte, err error) {
	if len(sample) < len(d.fixed) {
		return nil, fmt.Errorf("decode %d of %d bytes: %w", len(sample), len(d.fixed), ErrShort)
	}
	n := copy(d.fixed, sample)
	return sample[n:], nil
}

// Size is the number of bytes of the fixed part.
func (d *Decoder) Size() int { return len(d.fixed) }
