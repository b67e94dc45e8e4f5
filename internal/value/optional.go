package value

import "strconv"

// Count is an optional number.
type Count struct {
	N     uint64
	Given bool
}

func (v *Count) Absent() bool               { return !v.Given }
func (v *Count) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) Schema() Schema             { return Schema{Type: "integer"} }

// Any returns -1 if the number is absent.
func (v *Count) Any() any {
	if !v.Given {
		return -1
	}
	return integer(v.N)
}

// Offset is an optional number of bytes. Text shows whole KiB.
type Offset struct{ Count }

func (v *Offset) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N>>10, 10) }

// Integer is an optional signed number.
type Integer struct {
	N     int64
	Given bool
}

func (v *Integer) Absent() bool               { return !v.Given }
func (v *Integer) AppendText(b []byte) []byte { return strconv.AppendInt(b, v.N, 10) }
func (v *Integer) AppendJSON(b []byte) []byte { return strconv.AppendInt(b, v.N, 10) }
func (v *Integer) Any() any                   { return int(v.N) }
func (v *Integer) Schema() Schema             { return Schema{Type: "integer"} }

// Flag is an optional bool. Text shows 1 or 0.
type Flag struct{ Set, Given bool }

func (v *Flag) Absent() bool               { return !v.Given }
func (v *Flag) AppendJSON(b []byte) []byte { return strconv.AppendBool(b, v.Set) }
func (v *Flag) Any() any                   { return v.Set }
func (v *Flag) Schema() Schema             { return Schema{Type: "boolean"} }

func (v *Flag) AppendText(b []byte) []byte {
	if v.Set {
		return append(b, '1')
	}
	return append(b, '0')
}

// IntOf returns an argument of type int, which registers of a system call hold without its sign: the
// file descriptor -1 as 4294967295.
func IntOf[T ~int32 | ~uint32 | ~uint64](n T) Integer {
	return Integer{N: int64(int32(n)), Given: true}
}
