package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var percentiles = []float64{0, 0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100}

// distributions are distributions of durations in nanoseconds. Those that are not smooth are worst
// cases for linear interpolation in a slot.
var distributions = []struct {
	name   string
	smooth bool
	next   func(r *rand.Rand) float64
}{
	{"constant", true, func(*rand.Rand) float64 { return 123456 }},
	{"uniform", true, func(r *rand.Rand) float64 { return r.Float64() * 1e6 }},
	{"exponential", true, func(r *rand.Rand) float64 { return r.ExpFloat64() * 20e3 }},
	{"lognormal", true, func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()*2 + 10) }},
	{"pareto", true, func(r *rand.Rand) float64 { return 500 * math.Pow(1-r.Float64(), -1.2) }},
	{"narrow", true, func(r *rand.Rand) float64 { return 50e3 + r.NormFloat64()*300 }},
	{"tiny", true, func(r *rand.Rand) float64 { return r.Float64() * 300 }},
	{"huge", true, func(r *rand.Rand) float64 { return r.Float64() * (1 << 48) }},
	{"two clumps", false, func(r *rand.Rand) float64 { return pick(r, 0.9, 16000, 16999) }},
	{"two clumps, reversed", false, func(r *rand.Rand) float64 { return pick(r, 0.1, 16000, 16999) }},
	{"clump and outlier", false, func(r *rand.Rand) float64 { return pick(r, 0.999, 1000, 1062) }},
	{"outlier and clump", false, func(r *rand.Rand) float64 { return pick(r, 0.001, 1000, 1062) }},
	{"ticks", false, func(r *rand.Rand) float64 { return float64(1+r.IntN(5)) * 1e6 }},
}

func pick(r *rand.Rand, p, a, b float64) float64 {
	if r.Float64() < p {
		return a
	}
	return b
}

// nearestRank returns the exact percentile of sorted durations.
func nearestRank(sorted []uint64, p float64) uint64 {
	rank := int(math.Ceil(math.Round(p*1e6) * float64(len(sorted)) / 100e6))
	return sorted[max(1, rank)-1]
}

func TestPercentileAccuracy(t *testing.T) {
	for _, d := range distributions {
		worst := 0.0
		for seed, n := range []int{1, 2, 3, 4, 10, 37, 100, 1000, 1000, 20000} {
			r := seeded(uint64(seed))
			sample := make([]uint64, n)
			for i := range sample {
				sample[i] = uint64(d.next(r))
			}
			worst = max(worst, worstError(t, d.name, sample, n >= 1000 && d.smooth))
		}
		t.Logf("%s: within %.2f %%", d.name, 100*worst)
	}
}

// worstError compares the percentiles of the sample with the exact ones in each unit, and
// returns the largest relative error.
func worstError(t *testing.T, name string, sample []uint64, smooth bool) (worst float64) {
	t.Helper()
	allowed := 0.05
	if smooth {
		allowed = 0.02
	}
	sorted := slices.Sorted(slices.Values(sample))
	for _, u := range units {
		h := record(New(u), sample...)
		for _, p := range percentiles {
			want := float64(nearestRank(sorted, p))
			got := h.Percentile(p) * float64(u)
			diff := math.Abs(got - want)
			if diff > 1e-12*want && diff > allowed*want {
				t.Errorf("%s, %d durations in %v: p%v = %v ns, want %v ns", name, len(sample), u, p, got, want)
			}
			if want > 0 {
				worst = max(worst, diff/want)
			}
		}
	}
	return worst
}

// TestPercentileAccuracyOfSmallSlots tests all combinations of a few durations in a slot.
func TestPercentileAccuracyOfSmallSlots(t *testing.T) {
	for _, lo := range []uint64{32, 64, 128, 1 << 20} {
		step := max(1, lo/16/3) // min and max of a slot and two values between them
		for n := 1; n <= 7; n++ {
			sample := make([]uint64, n)
			var fill func(i int, from uint64)
			fill = func(i int, from uint64) {
				if i == n {
					worstError(t, "slot", sample, false)
					return
				}
				for v := from; v < lo+lo/16; v += step {
					sample[i] = v
					fill(i+1, v)
				}
			}
			fill(0, lo)
		}
	}
}

func TestPercentileExact(t *testing.T) {
	tests := []struct {
		name string
		ns   []uint64
		p    float64
		want float64
	}{
		{"one", []uint64{1234567}, 50, 1234.567},
		{"equal durations", []uint64{1003, 1003, 1003, 1003, 1003, 1003}, 33, 1.003},
		{"two in a slot, first", []uint64{1000, 1050}, 50, 1},
		{"two in a slot, second", []uint64{1000, 1050}, 50.000001, 1.05},
		{"three in a slot, middle", []uint64{1000, 1007, 1050}, 50, 1.007},
		{"0 is the minimum", []uint64{1000, 1007, 1050, 9000}, 0, 1},
		{"below 0", []uint64{1000, 9000}, -1, 1},
		{"above 100", []uint64{1000, 9000}, 101, 9},
		{"NaN", []uint64{1000, 9000}, math.NaN(), 1},
	}
	for _, tt := range tests {
		if got := record(New(Microseconds), tt.ns...).Percentile(tt.p); got != tt.want {
			t.Errorf("%s: p%v = %v, want %v", tt.name, tt.p, got, tt.want)
		}
	}
}

func TestRank(t *testing.T) {
	tests := []struct {
		count uint64
		p     float64
		want  uint64
	}{
		{1, 50, 1},
		{4, 50, 2},
		{4, 50.1, 3},
		{1000, 99.9, 999},
		{1000, 0.1, 1},
		{1000, 0.100001, 2},
		{1000, 1e-9, 1},
		{1000000000, 1.001, 10010000},
		{3, 100, 3},
		{math.MaxUint64, 50, 1 << 63},
		{math.MaxUint64, 100, math.MaxUint64},
	}
	for _, tt := range tests {
		h := New(Microseconds)
		h.Add(0, Slot{Count: tt.count})
		if got := h.rank(tt.p); got != tt.want {
			t.Errorf("rank of p%v of %d = %d, want %d", tt.p, tt.count, got, tt.want)
		}
	}
}

// TestPercentileOfInconsistentSlot tests minimum and maximum that are inconsistent with the sum, as
// when an interrupted BPF program loses an update.
func TestPercentileOfInconsistentSlot(t *testing.T) {
	for _, s := range []Slot{
		{Count: 10, Sum: 9000, Min: 1000, Max: 1050},
		{Count: 10, Sum: 90000, Min: 1000, Max: 1050},
	} {
		for rank := uint64(1); rank <= s.Count; rank++ {
			if got := s.estimate(rank); got < s.Min || got > s.Max {
				t.Errorf("%+v: duration %d = %d, want it between min and max", s, rank, got)
			}
		}
	}
}

func BenchmarkPercentile(b *testing.B) {
	h := record(New(Microseconds), randomDurations(seeded(8), 20000)...)
	b.ReportMetric(float64(len(h.cells)), "cells")
	b.ReportAllocs()
	for b.Loop() {
		h.Percentile(99)
	}
}
