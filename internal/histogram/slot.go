package histogram

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"strconv"
)

// Slots is the number of slots: HIST_SLOTS of hist.bpf.h.
const Slots = 976

// lastSlot is the slot of math.MaxUint64.
const lastSlot = Slots - 1

// Slot mirrors struct hist_slot: the durations that one CPU recorded in one slot. Sum, Min
// and Max are in nanoseconds; Sum wraps after 584 years.
type Slot struct {
	Count, Sum, Min, Max uint64
}

// SlotOf returns the slot of a fixed-point number: x itself below 16, and 16 slots per
// power of two above. It must match hist_slot_of in bpf/hist.bpf.h.
func SlotOf(x uint64) int {
	shift := max(0, bits.Len64(x)-5)
	return shift*16 + int(x>>shift)
}

// Bounds is the inverse of [SlotOf]: a slot holds the numbers lo <= x < hi. The last slot
// also holds its hi, which is math.MaxUint64. Bounds panics if slot is invalid.
func Bounds(slot int) (lo, hi uint64) {
	checkSlot(slot)
	shift := max(0, slot/16-1)
	lo = uint64(slot-shift*16) << shift
	if slot == lastSlot {
		return lo, math.MaxUint64
	}
	return lo, lo + 1<<shift
}

func checkSlot(slot int) {
	if slot < 0 || slot > lastSlot {
		panic(fmt.Sprintf("histogram: invalid slot %d", slot))
	}
}

// add adds the durations of o.
func (s *Slot) add(o Slot) {
	switch {
	case o.Count == 0:
		return
	case s.Count == 0:
		*s = o
		return
	}
	s.Count += o.Count
	s.Sum += o.Sum
	s.Min = min(s.Min, o.Min)
	s.Max = max(s.Max, o.Max)
}

// appendMean appends the mean of a non-empty histogram. That of plain numbers has digits decimals at
// most, or as many as a float64 has if digits is -1; others are rounded to nanoseconds.
func (h *Histogram) appendMean(dst []byte, digits int) []byte {
	if h.unit != Values {
		return h.unit.appendDecimal(dst, h.total.mean())
	}
	mean := strconv.AppendFloat(dst, h.Mean(), 'f', digits, 64)
	if bytes.IndexByte(mean[len(dst):], '.') < 0 {
		return mean
	}
	return bytes.TrimRight(bytes.TrimRight(mean, "0"), ".")
}

// mean returns the mean of a non-empty slot, rounded to the nearest nanosecond.
func (s *Slot) mean() uint64 {
	mean, rest := s.Sum/s.Count, s.Sum%s.Count
	if rest >= s.Count-rest {
		mean++
	}
	return mean
}
