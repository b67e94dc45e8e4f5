package histogram

import (
	"math"
	"math/bits"
)

// Unit is the unit of a histogram, in nanoseconds: the value of the BPF variable
// hist_unit_ns. The constants below are the only valid units. Values are plain numbers
// without a unit, which are handled like nanoseconds. Kilobytes are units of 1,024 bytes, and
// programs count bytes instead of nanoseconds.
type Unit uint64

const (
	Values       Unit = 0
	Nanoseconds  Unit = 1
	Kilobytes    Unit = 1024
	Microseconds Unit = 1000
	Milliseconds Unit = 1000000
)

// String returns nsecs, usecs, msecs, Kbytes or value.
func (u Unit) String() string {
	switch u {
	case Values:
		return "value"
	case Nanoseconds:
		return "nsecs"
	case Kilobytes:
		return "Kbytes"
	case Microseconds:
		return "usecs"
	default:
		return "msecs"
	}
}

// ns returns the length of the unit in nanoseconds, 1 for Values.
func (u Unit) ns() uint64 { return max(1, uint64(u)) }

// SlotOf returns the slot in which hist_record counts a duration. Durations of 2^63 ns
// and more share the slot of 2^63 - 1 ns unless the unit is 1 ns.
func (u Unit) SlotOf(ns uint64) int {
	return SlotOf(u.fixedPoint(ns))
}

// Bounds returns the range of durations of a slot, lo <= ns < hi, in nanoseconds. The
// last slot of the unit also holds its hi, which is math.MaxUint64. A slot that lies
// between two whole nanoseconds is empty: lo == hi.
func (u Unit) Bounds(slot int) (lo, hi uint64) {
	lo, hi = Bounds(slot)
	if slot >= u.SlotOf(math.MaxUint64) {
		return u.nanoseconds(lo), math.MaxUint64
	}
	return u.nanoseconds(lo), u.nanoseconds(hi)
}

// scale returns the factor 2^shift / div that converts nanoseconds to the fixed-point
// number from which slots are computed. Bytes are that number already. A unit of time is
// 2^10 (usecs) or 2^20 (msecs) steps, the smallest power of two for which a step is at
// most a nanosecond.
func (u Unit) scale() (div uint64, shift int) {
	switch u {
	case Values, Nanoseconds, Kilobytes:
		return 1, 0
	case Microseconds:
		return 125, 7
	default:
		return 15625, 14
	}
}

// fixedPoint must match hist_fixed_point in bpf/hist.bpf.h step by step.
func (u Unit) fixedPoint(ns uint64) uint64 {
	div, shift := u.scale()
	switch {
	case shift == 0:
		return ns
	case ns < 1<<50:
		return ns << shift / div
	default:
		return min(ns, math.MaxInt64) / div << shift
	}
}

// nanoseconds returns the shortest duration whose fixed-point number is at least x.
func (u Unit) nanoseconds(x uint64) uint64 {
	div, shift := u.scale()
	hi, lo := bits.Mul64(x, div)
	lo, carry := bits.Add64(lo, 1<<shift-1, 0)
	return (hi+carry)<<(64-shift) | lo>>shift
}
