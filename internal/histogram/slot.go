package histogram

import (
	"fmt"
	"math"
	"math/bits"
)

// lastSlot is the slot of the greatest uint64.
const lastSlot = 975

// Slot is what BPF keeps of the durations that fell into one slot on one CPU:
// struct hist_slot. Sum, Min and Max are nanoseconds; a sum of 584 years wraps.
type Slot struct {
	Count, Sum, Min, Max uint64
}

// SlotOf returns the slot of a fixed-point number: x itself below 16, and from
// there on 16 slots for each power of two. It is hist_slot_of of bpf/hist.bpf.h.
func SlotOf(x uint64) int {
	shift := max(0, bits.Len64(x)-5)
	return shift*16 + int(x>>shift)
}

// Bounds is the inverse of [SlotOf]: the numbers of a slot are lo <= x < hi. The
// last slot also holds its hi, which is the greatest uint64. Bounds panics for
// what is no slot.
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
		panic(fmt.Sprintf("histogram: no slot %d", slot))
	}
}

// add counts what o counted.
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

// mean returns the mean of a slot that is not empty, to the nearest nanosecond.
func (s *Slot) mean() uint64 {
	mean, rest := s.Sum/s.Count, s.Sum%s.Count
	if rest >= s.Count-rest {
		mean++
	}
	return mean
}
