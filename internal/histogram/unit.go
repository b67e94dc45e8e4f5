package histogram

import (
	"math"
	"math/bits"
)

// Unit is the unit that durations are shown in, as its nanoseconds: what the
// BPF variable hist_unit_ns is set to. There are no others than these. Values are no
// durations but plain numbers, which are handled as nanoseconds are.
type Unit uint64

const (
	Values       Unit = 0
	Nanoseconds  Unit = 1
	Microseconds Unit = 1000
	Milliseconds Unit = 1000000
)

// String returns nsecs, usecs, msecs or value.
func (u Unit) String() string {
	switch u {
	case Values:
		return "value"
	case Nanoseconds:
		return "nsecs"
	case Microseconds:
		return "usecs"
	default:
		return "msecs"
	}
}

// ns is how many of what is counted make one of the unit.
func (u Unit) ns() uint64 { return max(1, uint64(u)) }

// SlotOf returns the slot that BPF's hist_record counts a duration in. Durations
// of 2^63 ns and more share a slot with 2^63 - 1 ns unless the unit is 1 ns.
func (u Unit) SlotOf(ns uint64) int {
	return SlotOf(u.fixedPoint(ns))
}

// Bounds returns the durations of a slot, lo <= ns < hi in nanoseconds. The last
// slot that the unit has also holds its hi, which is the greatest uint64. A slot
// between two nanoseconds is empty: lo == hi.
func (u Unit) Bounds(slot int) (lo, hi uint64) {
	lo, hi = Bounds(slot)
	if slot >= u.SlotOf(math.MaxUint64) {
		return u.nanoseconds(lo), math.MaxUint64
	}
	return u.nanoseconds(lo), u.nanoseconds(hi)
}

// scale returns the fraction that turns nanoseconds into the fixed-point number
// that slots are cut from: 2^shift / div of them. A unit is 2^10 (usecs) or 2^20
// (msecs) such steps, the fewest that make one no longer than a nanosecond.
func (u Unit) scale() (div uint64, shift int) {
	switch u {
	case Values, Nanoseconds:
		return 1, 0
	case Microseconds:
		return 125, 7
	default:
		return 15625, 14
	}
}

// fixedPoint is hist_fixed_point of bpf/hist.bpf.h, step by step.
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

// nanoseconds returns the least duration whose fixed-point number is x or more.
func (u Unit) nanoseconds(x uint64) uint64 {
	div, shift := u.scale()
	hi, lo := bits.Mul64(x, div)
	lo, carry := bits.Add64(lo, 1<<shift-1, 0)
	return (hi+carry)<<(64-shift) | lo>>shift
}
