package histogram

import (
	"math"
	"math/bits"
)

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	return h.total.Count
}

// Sum returns the sum of the durations in the unit, 0 if there are none.
func (h *Histogram) Sum() float64 {
	return h.inUnit(h.total.Sum)
}

// Min returns the least duration in the unit, NaN if there are none.
func (h *Histogram) Min() float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.total.Min)
}

// Max returns the greatest duration in the unit, NaN if there are none.
func (h *Histogram) Max() float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.total.Max)
}

// Mean returns the mean duration in the unit, NaN if there are none.
func (h *Histogram) Mean() float64 {
	return h.Sum() / float64(h.total.Count)
}

// Percentile returns the p-th percentile in the unit, NaN if there are no
// durations. It is the nearest-rank one: the least duration such that at least p %
// of all durations are no greater. p is taken to six decimals and cut to 0..100,
// of which 0 gives the least duration.
//
// The result is a whole number of nanoseconds, within 5 % of the true one (about
// 1 % where the distribution is smooth), and the true one if its slot holds no more
// than three durations or only equal ones. So the least and the greatest are exact.
// Beyond 2^63 ns there is but one slot: 5 % does not hold there.
func (h *Histogram) Percentile(p float64) float64 {
	if h.total.Count == 0 {
		return math.NaN()
	}
	return h.inUnit(h.percentile(p))
}

// percentile returns it in nanoseconds, for a histogram that is not empty.
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

// rank returns p % of the count, rounded up, from 1 on. In integers, because 99.9 %
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

// estimate returns what the rank-th duration of the slot may have been, counted
// from 1: a straight line from min to max, kept to where the sum lets it be. Were
// all below it as small and all above it as great as it allows, the sum gives the
// least that it can be, and the greatest the other way round. The line is kept off
// these two ends by a quarter, which bounds the error by three quarters of the
// sixteenth of its value that a slot is wide.
func (s *Slot) estimate(rank uint64) uint64 {
	if rank == 1 || s.Min == s.Max {
		return s.Min
	}
	if rank == s.Count {
		return s.Max
	}
	width := float64(s.Max - s.Min)
	excess := float64(s.Sum - s.Count*s.Min) // of the sum over count times min
	below, above := float64(rank-1), float64(s.Count-rank)
	lo := max(0, (excess-above*width)/below)
	hi := min(width, (excess-width)/above)
	if lo > hi {
		// An interrupted BPF program may leave a min or max beside the sum.
		lo, hi = 0, width
	}
	line := width * below / (below + above)
	margin := (hi - lo) / 4
	return s.Min + uint64(math.Round(min(max(line, lo+margin), hi-margin)))
}

func (h *Histogram) inUnit(ns uint64) float64 {
	return float64(ns) / float64(h.unit.ns())
}
