package value

import (
	"math"
	"strconv"
)

type flag bool

func (v *flag) AppendText(b []byte) []byte { return strconv.AppendBool(b, bool(*v)) }
func (v *flag) AppendJSON(b []byte) []byte { return strconv.AppendBool(b, bool(*v)) }
func (v *flag) Any() any                   { return bool(*v) }
func (v *flag) Schema() Schema             { return Schema{Type: "boolean"} }

type unsigned[T uint8 | uint16 | uint32 | uint64] struct{ p *T }

func (v unsigned[T]) AppendText(b []byte) []byte { return strconv.AppendUint(b, uint64(*v.p), 10) }
func (v unsigned[T]) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v.p), 10) }
func (v unsigned[T]) Any() any                   { return integer(uint64(*v.p)) }
func (v unsigned[T]) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

type signed[T int32 | int64] struct{ p *T }

func (v signed[T]) AppendText(b []byte) []byte { return strconv.AppendInt(b, int64(*v.p), 10) }
func (v signed[T]) AppendJSON(b []byte) []byte { return strconv.AppendInt(b, int64(*v.p), 10) }
func (v signed[T]) Any() any                   { return int(*v.p) }
func (v signed[T]) Schema() Schema             { return Schema{Type: "integer"} }

type float float64

func (v *float) AppendText(b []byte) []byte { return strconv.AppendFloat(b, float64(*v), 'f', 2, 64) }
func (v *float) Any() any                   { return float64(*v) }
func (v *float) Schema() Schema             { return Schema{Type: "number"} }

// AppendJSON appends null for what is not a number, as JSON has no word for it.
func (v *float) AppendJSON(b []byte) []byte {
	f := float64(*v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// integer is n for expressions, which know int alone: what is above that is its maximum,
// so that comparisons go the right way.
func integer(n uint64) int { return int(min(n, math.MaxInt)) }

// Nanoseconds is a span of time that text shows in milliseconds.
type Nanoseconds uint64

func (v *Nanoseconds) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e6, 'f', 2, 64)
}

func (v *Nanoseconds) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Nanoseconds) Any() any                   { return integer(uint64(*v)) }
func (v *Nanoseconds) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Span is a span of time that is absent where it is 0: it is not known.
type Span struct{ Nanoseconds }

// Absent reports that the time is not known.
func (v *Span) Absent() bool { return v.Nanoseconds == 0 }

// Address is one in memory. JSON has it as a string, as numbers there need not
// be exact above 2^53.
type Address uint64

func (v *Address) AppendText(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 16) }
func (v *Address) AppendJSON(b []byte) []byte {
	return append(strconv.AppendUint(append(b, `"0x`...), uint64(*v), 16), '"')
}
func (v *Address) Any() any       { return "0x" + strconv.FormatUint(uint64(*v), 16) }
func (v *Address) Schema() Schema { return Schema{Type: "string"} }

// Elapsed is a span of time in ns that text shows in seconds, with milliseconds.
type Elapsed uint64

func (v *Elapsed) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e9, 'f', 3, 64)
}

func (v *Elapsed) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Elapsed) Any() any                   { return int(*v) }
func (v *Elapsed) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Size is a number of bytes that text shows in units of 1,024.
type Size uint64

func (v *Size) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1024, 'f', 2, 64)
}

func (v *Size) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Size) Any() any                   { return integer(uint64(*v)) }
func (v *Size) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Micros is a span of time in ns that text shows in microseconds.
type Micros uint64

func (v *Micros) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e3, 'f', 3, 64)
}
func (v *Micros) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Micros) Any() any                   { return integer(uint64(*v)) }
func (v *Micros) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Rate is how many there were a second. Text shows it whole from 10 on.
type Rate float64

func (v *Rate) AppendText(b []byte) []byte {
	if *v >= 10 || *v == 0 {
		return strconv.AppendFloat(b, float64(*v), 'f', 0, 64)
	}
	return strconv.AppendFloat(b, float64(*v), 'f', 2, 64)
}
func (v *Rate) AppendJSON(b []byte) []byte { return (*float)(v).AppendJSON(b) }
func (v *Rate) Any() any                   { return float64(*v) }
func (v *Rate) Schema() Schema             { return Schema{Type: "number"} }

// NewRate is n in a span of ns.
func NewRate(n uint64, ns int64) Rate {
	if ns <= 0 {
		return 0
	}
	return Rate(float64(n) * 1e9 / float64(ns))
}

// Percent is a part in a hundred. It is absent where it is not a number.
type Percent float64

func (v *Percent) AppendText(b []byte) []byte {
	return append(strconv.AppendFloat(b, float64(*v), 'f', 2, 64), '%')
}
func (v *Percent) AppendJSON(b []byte) []byte { return (*float)(v).AppendJSON(b) }
func (v *Percent) Any() any                   { return float64(*v) }
func (v *Percent) Schema() Schema             { return Schema{Type: "number"} }
func (v *Percent) Absent() bool               { return math.IsNaN(float64(*v)) }

// Mean is a sum by the number of what was added up. It is absent where that is 0. Text
// shows it whole.
type Mean struct{ Sum, N uint64 }

func (v *Mean) of() float64                { return float64(v.Sum) / float64(v.N) }
func (v *Mean) AppendText(b []byte) []byte { return strconv.AppendFloat(b, v.of(), 'f', 0, 64) }
func (v *Mean) AppendJSON(b []byte) []byte { f := float(v.of()); return f.AppendJSON(b) }
func (v *Mean) Any() any                   { return v.of() }
func (v *Mean) Schema() Schema             { return Schema{Type: "number"} }
func (v *Mean) Absent() bool               { return v.N == 0 }
