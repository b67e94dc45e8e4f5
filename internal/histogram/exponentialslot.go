package histogram

import (
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Slots for histograms whose values are exported: hist_exponential_slot_of in bpf/hist.bpf.h. Slot 0
// contains 0, and each other slot is a bucket of schema 3 of Prometheus native histograms.
const (
	schema    = 3
	perOctave = 1 << schema
)

// Bounds of exponential slots in an octave: the powers of 2^(1/8) of 10^9 ns, or of 1, times the power
// of two that sets bit 63, rounded down. One is exact: 10^9 << 34, and 1 << 63.
var (
	secondBounds = [perOctave]uint64{
		0x81ffa7a9549ca6e3, 0x8dc3b8960164a7d9, 0x9a9867054d512391, 0xa8965f74bf065071,
		0xb7d88a12d0dd9ea0, 0xc87c3e7d03cdbec3, 0xdaa17c2cd19555db, 1e9 << 34,
	}
	plainBounds = [perOctave]uint64{
		1 << 63, 0x8b95c1e3ea8bd6e6, 0x9837f0518db8a96f, 0xa5fed6a9b15138ea,
		0xb504f333f9de6484, 0xc5672a115506dadd, 0xd744fccad69d6af4, 0xeac0c6e7dd24392e,
	}
)

// belowSecond is the number of bounds from 1 ns to below a second: 8 * log2(10^9), rounded down.
const belowSecond = 239

// IsDuration reports whether values are durations, which are counted in nanoseconds.
func (u Unit) IsDuration() bool {
	return u == Nanoseconds || u == Microseconds || u == Milliseconds
}

// perBase returns the number of counted units in the base unit: nanoseconds in a second.
func (u Unit) perBase() uint64 {
	if u.IsDuration() {
		return 1e9
	}
	return 1
}

// exponentialBounds returns the bounds in an octave, and the number of bounds from 1 to below the base
// unit.
func (u Unit) exponentialBounds() (bounds *[perOctave]uint64, below int) {
	if u.IsDuration() {
		return &secondBounds, belowSecond
	}
	return &plainBounds, 0
}

// ExponentialVariables returns the values of BPF variables for histograms with exponential slots.
func (u Unit) ExponentialVariables() map[string]any {
	bounds, _ := u.exponentialBounds()
	return map[string]any{"hist_unit_ns": uint64(math.MaxUint64), "hist_bounds": slices.Clone(bounds[:])}
}

// exponentialSlotOf returns the slot in which programs count a value.
func (u Unit) exponentialSlotOf(value uint64) int {
	if value == 0 {
		return 0
	}
	bounds, _ := u.exponentialBounds()
	log := bits.Len64(value) - 1
	value <<= 63 - log
	return 1 + log*perOctave + sort.Search(perOctave, func(i int) bool { return bounds[i] >= value })
}

// exponentialIndex returns the index of the bucket of a slot; none for the slot of 0.
func (u Unit) exponentialIndex(slot int) (index int, ok bool) {
	_, below := u.exponentialBounds()
	return slot - 1 - below, slot > 0
}

// exponentialRange returns the values of an exponential slot: lo <= v < hi. That of math.MaxUint64 also
// contains hi.
func (u Unit) exponentialRange(slot int) (lo, hi uint64) {
	return u.exponentialStart(slot), u.exponentialStart(slot + 1)
}

// exponentialStart returns the least value whose slot is not less, at most math.MaxUint64.
func (u Unit) exponentialStart(slot int) uint64 {
	lo, hi := uint64(0), uint64(math.MaxUint64)
	for lo < hi {
		mid := lo + (hi-lo)/2
		if u.exponentialSlotOf(mid) < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
