package histogram

import (
	"math"
	"math/bits"
)

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	return h.total.Count
}

// Sum returns the sum of the durations in the unit, 0 if the histogram is empty.
func (h *Histogram) Sum() float64 {
	return h.inUnit(h.total.Sum)
}

// Min returns the shortest duration in the unit, NaN if the histogram is empty.
func (h *Histogram) Min() float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.total.Min)
}

// Max returns the longest duration in the unit, NaN if the histogram is empty.
func (h *Histogram) Max() float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.total.Max)
}

// Mean returns the mean duration in the unit, NaN if the histogram is empty.
func (h *Histogram) Mean() float64 {
	return h.Sum() / float64(h.total.Count)
}

// Percentile returns the p-th percentile in the unit, NaN if the histogram is empty. It
// uses the nearest-rank definition: the smallest duration such that at least p % of all
// durations are less than or equal to it. p is rounded to six decimals and clamped to
// 0..100; 0 returns the minimum.
//
// The result is a whole number of nanoseconds and within 5 % of the exact percentile
// (about 1 % for smooth distributions). It is exact if its slot holds at most three
// durations or only equal ones; therefore minimum and maximum are exact. The 5 % do not
// hold above 2^63 ns, where there is only one slot.
func (h *Histogram) Percentile(p float64) float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.percentile(p))
}

// percentile returns the p-th percentile of a non-empty histogram in nanoseconds.
func (h *Histogram) percentile(p float64) uint64 {
	rank := h.rank(p)
	for i := range h.cells {
		if rank <= h.cells[i].Count {
			return h.cells[i].estimate(rank)
		}
		rank -= h.cells[i].Count
	}
	return h.total.Max
}

// rank returns p % of the count, rounded up, at least 1. It uses integers, because 99.9 %
// of 1000 is more than 999 in floating point.
func (h *Histogram) rank(p float64) uint64 {
	const whole = 100e6
	switch {
	case !(p > 0):
		return 1
	case p >= 100:
		return h.total.Count
	}
	hi, lo := bits.Mul64(h.total.Count, uint64(math.Round(p*1e6)))
	lo, carry := bits.Add64(lo, whole-1, 0)
	rank, _ := bits.Div64(hi+carry, lo, whole)
	return max(1, rank)
}

// estimate returns an estimate of the rank-th duration of the slot, counted from 1. It interpolates
// linearly between min and max, limited to the range that the sum permits. The lower limit is
// reached if the first duration is min, the others up to rank are equal to each other and all later
// ones are max. The upper limit is reached if all earlier durations are min, the last one is max,
// and the others from rank on are equal to each other. The result is at least a quarter of the
// range away from both limits, which bounds the error by three quarters of the slot's width, which
// is a sixteenth of its value.
func (s *Slot) estimate(rank uint64) uint64 {
	if rank == 1 || s.Min == s.Max {
		return s.Min
	}
	if rank == s.Count {
		return s.Max
	}
	width := float64(s.Max - s.Min)
	excess := float64(s.Sum - s.Count*s.Min) // sum of the differences from min
	below, above := float64(rank-1), float64(s.Count-rank)
	lo := max(0, (excess-above*width)/below)
	hi := min(width, (excess-width)/above)
	if lo > hi {
		// The loss of an update by an interrupted BPF program makes min or max inconsistent.
		lo, hi = 0, width
	}
	line := width * below / (below + above)
	margin := (hi - lo) / 4
	return s.Min + uint64(math.Round(min(max(line, lo+margin), hi-margin)))
}

func (h *Histogram) inUnit(ns uint64) float64 {
	return float64(ns) / float64(h.unit.ns())
}
