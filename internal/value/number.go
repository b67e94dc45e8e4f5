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

// AppendJSON appends null for NaN and infinities, which JSON cannot represent.
func (v *float) AppendJSON(b []byte) []byte {
	f := float64(*v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// integer converts n for expressions, which only support int. Larger values saturate, so
// that comparisons remain correct.
func integer(n uint64) int { return int(min(n, math.MaxInt)) }

// Nanoseconds is a duration in ns. Text shows milliseconds.
type Nanoseconds uint64

func (v *Nanoseconds) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e6, 'f', 2, 64)
}

func (v *Nanoseconds) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Nanoseconds) Any() any                   { return integer(uint64(*v)) }
func (v *Nanoseconds) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Span is a duration that is absent if it is 0, which means unknown.
type Span struct{ Nanoseconds }

// Absent reports whether the duration is unknown.
func (v *Span) Absent() bool { return v.Nanoseconds == 0 }

// Address is a memory address. It is a string in JSON, where numbers above 2^53 may lose
// precision.
type Address uint64

func (v *Address) AppendText(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 16) }
func (v *Address) AppendJSON(b []byte) []byte {
	return append(strconv.AppendUint(append(b, `"0x`...), uint64(*v), 16), '"')
}
func (v *Address) Any() any       { return "0x" + strconv.FormatUint(uint64(*v), 16) }
func (v *Address) Schema() Schema { return Schema{Type: "string"} }

// Elapsed is a duration in ns. Text shows seconds with three decimals.
type Elapsed uint64

func (v *Elapsed) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e9, 'f', 3, 64)
}

func (v *Elapsed) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Elapsed) Any() any                   { return integer(uint64(*v)) }
func (v *Elapsed) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Size is a number of bytes. Text shows KiB.
type Size uint64

func (v *Size) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1024, 'f', 2, 64)
}

func (v *Size) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Size) Any() any                   { return integer(uint64(*v)) }
func (v *Size) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Micros is a duration in ns. Text shows microseconds.
type Micros uint64

func (v *Micros) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1e3, 'f', 3, 64)
}
func (v *Micros) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Micros) Any() any                   { return integer(uint64(*v)) }
func (v *Micros) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Scaled is a duration in ns. Text shows it in units of Unit ns, 0 stands for 1.
type Scaled struct{ Ns, Unit uint64 }

func (v *Scaled) AppendText(b []byte) []byte {
	if v.Unit <= 1 {
		return strconv.AppendUint(b, v.Ns, 10)
	}
	return strconv.AppendFloat(b, float64(v.Ns)/float64(v.Unit), 'f', 3, 64)
}
func (v *Scaled) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.Ns, 10) }
func (v *Scaled) Any() any                   { return integer(v.Ns) }
func (v *Scaled) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }

// Rate is a number of events per second. Text shows decimals only below 10.
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

// NewRate returns the rate of n events in ns nanoseconds, 0 if ns is not positive.
func NewRate(n uint64, ns int64) Rate {
	if ns <= 0 {
		return 0
	}
	return Rate(float64(n) * 1e9 / float64(ns))
}

// Load is a load average. Text shows three decimals. It is absent if it is NaN.
type Load float64

func (v *Load) AppendText(b []byte) []byte { return strconv.AppendFloat(b, float64(*v), 'f', 3, 64) }
func (v *Load) AppendJSON(b []byte) []byte { return (*float)(v).AppendJSON(b) }
func (v *Load) Any() any                   { return float64(*v) }
func (v *Load) Schema() Schema             { return Schema{Type: "number"} }
func (v *Load) Absent() bool               { return math.IsNaN(float64(*v)) }

// Percent is a percentage. It is absent if it is NaN.
type Percent float64

func (v *Percent) AppendText(b []byte) []byte {
	return append(strconv.AppendFloat(b, float64(*v), 'f', 2, 64), '%')
}
func (v *Percent) AppendJSON(b []byte) []byte { return (*float)(v).AppendJSON(b) }
func (v *Percent) Any() any                   { return float64(*v) }
func (v *Percent) Schema() Schema             { return Schema{Type: "number"} }
func (v *Percent) Absent() bool               { return math.IsNaN(float64(*v)) }

// Mean is the mean of N values with the given sum. It is absent if N is 0. Text has two
// decimals.
type Mean struct{ Sum, N uint64 }

func (v *Mean) mean() float64              { return float64(v.Sum) / float64(v.N) }
func (v *Mean) AppendText(b []byte) []byte { return strconv.AppendFloat(b, v.mean(), 'f', 2, 64) }
func (v *Mean) AppendJSON(b []byte) []byte { f := float(v.mean()); return f.AppendJSON(b) }
func (v *Mean) Any() any                   { return v.mean() }
func (v *Mean) Schema() Schema             { return Schema{Type: "number"} }
func (v *Mean) Absent() bool               { return v.N == 0 }

// Nonzero is a number that is absent if it is 0.
type Nonzero uint64

func (v *Nonzero) Absent() bool               { return *v == 0 }
func (v *Nonzero) AppendText(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Nonzero) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, uint64(*v), 10) }
func (v *Nonzero) Any() any                   { return integer(uint64(*v)) }
func (v *Nonzero) Schema() Schema             { return Schema{Type: "integer", Minimum: minimum(0)} }
