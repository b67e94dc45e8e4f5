package histogram

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// record adds durations one by one, as BPF programs do.
func record(h *Histogram, durations ...uint64) *Histogram {
	for _, ns := range durations {
		h.Add(h.unit.SlotOf(ns), Slot{Count: 1, Sum: ns, Min: ns, Max: ns})
	}
	return h
}

func seeded(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0))
}

func randomDurations(r *rand.Rand, n int) []uint64 {
	ns := make([]uint64, n)
	for i := range ns {
		ns[i] = r.Uint64N(1 << (1 + r.IntN(40)))
	}
	return ns
}

func TestTotals(t *testing.T) {
	tests := []struct {
		unit                Unit
		ns                  []uint64
		sum, min, max, mean float64
	}{
		{Nanoseconds, []uint64{0}, 0, 0, 0, 0},
		{Nanoseconds, []uint64{7, 3, 5}, 15, 3, 7, 5},
		{Microseconds, []uint64{100, 200}, 0.3, 0.1, 0.2, 0.15},
		{Milliseconds, []uint64{1500000, 500000, 1000000}, 3, 0.5, 1.5, 1},
		{Microseconds, []uint64{1 << 62, 1 << 62}, 1 << 63 / 1e3, 1 << 62 / 1e3, 1 << 62 / 1e3, 1 << 62 / 1e3},
	}
	for _, tt := range tests {
		h := record(New(tt.unit), tt.ns...)
		got := []float64{float64(h.Count()), h.Sum(), h.Min(), h.Max(), h.Mean()}
		want := []float64{float64(len(tt.ns)), tt.sum, tt.min, tt.max, tt.mean}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d %v: count, sum, min, max, mean = %v, want %v", tt.ns, tt.unit, got, want)
		}
	}
}

func TestEmpty(t *testing.T) {
	h := New(Microseconds)
	h.Add(3, Slot{})
	h.Merge(New(Microseconds))
	if h.Count() != 0 || h.Sum() != 0 || len(h.Buckets()) != 0 || len(h.Bars()) != 0 {
		t.Errorf("count %d, sum %v, buckets %v, bars %v", h.Count(), h.Sum(), h.Buckets(), h.Bars())
	}
	for _, v := range []float64{h.Min(), h.Max(), h.Mean(), h.Percentile(50)} {
		if !math.IsNaN(v) {
			t.Errorf("got %v for an empty histogram, want NaN", v)
		}
	}
}

func TestBuckets(t *testing.T) {
	durations := randomDurations(seeded(1), 3000)
	for _, u := range units {
		want := map[int]Slot{}
		for _, ns := range durations {
			s := want[u.SlotOf(ns)]
			s.add(Slot{1, ns, ns, ns})
			want[u.SlotOf(ns)] = s
		}
		buckets := record(New(u), durations...).Buckets()
		if len(buckets) != len(want) {
			t.Fatalf("%v: %d buckets, want %d", u, len(buckets), len(want))
		}
		for i, b := range buckets {
			if b.Slot != want[u.SlotOf(b.Lo)] || b.Min < b.Lo || b.Max >= b.Hi {
				t.Errorf("%v: bucket %+v, want %+v", u, b, want[u.SlotOf(b.Lo)])
			}
			if i > 0 && b.Lo < buckets[i-1].Hi {
				t.Errorf("%v: bucket %+v after %+v", u, b, buckets[i-1])
			}
		}
	}
}

func TestMergeEqualsAdd(t *testing.T) {
	r := seeded(2)
	for range 500 {
		a, b := randomDurations(r, r.IntN(40)), randomDurations(r, r.IntN(40))
		got, other := record(New(Microseconds), a...), record(New(Microseconds), b...)
		before := other.Buckets()
		got.Merge(other)
		want := record(New(Microseconds), append(a, b...)...)
		if got.total != want.total || !reflect.DeepEqual(got.Buckets(), want.Buckets()) {
			t.Fatalf("merge %v into %v:\n%v\nwant\n%v", b, a, got.Buckets(), want.Buckets())
		}
		if !reflect.DeepEqual(before, other.Buckets()) {
			t.Fatalf("merge changed %v to %v", before, other.Buckets())
		}
	}
}

func TestMergeIntoItself(t *testing.T) {
	h := record(New(Microseconds), 1000, 2000, 2000)
	h.Merge(h)
	want := record(New(Microseconds), 1000, 1000, 2000, 2000, 2000, 2000)
	if h.total != want.total || !reflect.DeepEqual(h.Buckets(), want.Buckets()) {
		t.Errorf("%v, want %v", h.Buckets(), want.Buckets())
	}
}

func TestMergeOfDifferentUnitPanics(t *testing.T) {
	mustPanic(t, func() { New(Microseconds).Merge(New(Milliseconds)) })
}

func TestAddAndMergeToExistingSlotsDoNotAllocate(t *testing.T) {
	a := record(New(Microseconds), randomDurations(seeded(3), 1000)...)
	b := record(New(Microseconds), randomDurations(seeded(4), 1000)...)
	a.Merge(b)
	allocs := testing.AllocsPerRun(10, func() {
		record(a, 12345)
		a.Merge(b)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkAdd(b *testing.B) {
	durations := randomDurations(seeded(5), 4096)
	h := record(New(Microseconds), durations...)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		record(h, durations[i%len(durations)])
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		h := record(New(Microseconds), randomDurations(seeded(6), n)...)
		other := record(New(Microseconds), randomDurations(seeded(7), n)...)
		h.Merge(other)
		b.Run(fmt.Sprintf("cells=%d", len(h.cells)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Merge(other)
			}
		})
	}
}
