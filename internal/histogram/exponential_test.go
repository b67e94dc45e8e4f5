package histogram

import (
	"maps"
	"math"
	"math/big"
	"reflect"
	"testing"

	"github.com/corescope/corescope/internal/value"
)

// definedIndex is the definition of buckets of schema 3, in exact integers: the least i with
// v/base <= 2^(i/8), which is v^8 <= base^8 * 2^i. estimate is near i.
func definedIndex(v, base uint64, estimate int) int {
	eighth := func(x uint64) *big.Int {
		return new(big.Int).Exp(new(big.Int).SetUint64(x), big.NewInt(8), nil)
	}
	contains := func(i int) bool {
		left, right := eighth(v), eighth(base)
		if i >= 0 {
			right.Lsh(right, uint(i))
		} else {
			left.Lsh(left, uint(-i))
		}
		return left.Cmp(right) <= 0
	}
	i := estimate
	for !contains(i) {
		i++
	}
	for contains(i - 1) {
		i--
	}
	return i
}

func checkIndex(t *testing.T, u Unit, v uint64) {
	t.Helper()
	slot := u.exponentialSlotOf(v)
	got, ok := u.exponentialIndex(slot)
	if want := definedIndex(v, u.perBase(), got); !ok || got != want {
		t.Errorf("%v: %d is in bucket %d, %v, want %d", u, v, got, ok, want)
	}
	if slot <= 0 || slot >= Slots {
		t.Errorf("%v: slot %d of %d", u, slot, v)
	}
}

// TestExponentialPowersOfTwo checks the bounds that are exact: each is in the bucket below.
func TestExponentialPowersOfTwo(t *testing.T) {
	index := func(u Unit, v uint64) int {
		i, _ := u.exponentialIndex(u.exponentialSlotOf(v))
		return i
	}
	for ns, power := uint64(1953125), -9; power <= 33; ns, power = ns*2, power+1 { // 2^-9 s to 2^33 s
		for _, u := range []Unit{Nanoseconds, Microseconds, Milliseconds} {
			if got := []int{index(u, ns-1), index(u, ns), index(u, ns+1)}; !reflect.DeepEqual(got, []int{8 * power, 8 * power, 8*power + 1}) {
				t.Errorf("%v: 2^%d s and the ns before and after are in buckets %v, want %d and the next one for the ns after", u, power, got, 8*power)
			}
		}
	}
	for power := range 64 {
		v := uint64(1) << power
		for _, u := range []Unit{Values, Kilobytes} {
			if index(u, v) != 8*power || index(u, v+1) <= 8*power || v > 1 && index(u, v-1) > 8*power {
				t.Errorf("%v: 2^%d and its neighbours are in buckets %d, %d, %d", u, power, index(u, v-1), index(u, v), index(u, v+1))
			}
		}
	}
	if index(Microseconds, 1e9) != 0 || index(Microseconds, 5e8) != -8 || index(Values, 1) != 0 {
		t.Error("1 s, 0.5 s and 1 are not in buckets 0, -8, 0")
	}
}

func TestExponentialSlots(t *testing.T) {
	r := seeded(11)
	for _, u := range []Unit{Values, Kilobytes, Nanoseconds, Microseconds, Milliseconds} {
		next := uint64(0)
		for slot := range u.exponentialSlotOf(math.MaxUint64) + 1 {
			lo, hi := u.exponentialRange(slot)
			if lo != next {
				t.Errorf("%v: slot %d begins at %d, want %d", u, slot, lo, next)
			}
			for _, v := range []uint64{lo - 1, lo, lo + 1} {
				if v != 0 && lo != 0 {
					checkIndex(t, u, v)
				}
			}
			if lo < hi && (u.exponentialSlotOf(lo) != slot || u.exponentialSlotOf(hi-1) != slot) {
				t.Errorf("%v: slot %d of %d..%d contains %d, %d", u, slot, lo, hi, u.exponentialSlotOf(lo), u.exponentialSlotOf(hi-1))
			}
			next = hi
		}
		if next != math.MaxUint64 {
			t.Errorf("%v: slots end at %d", u, next)
		}
		for range 200_000 {
			checkIndex(t, u, 1+r.Uint64()>>r.IntN(64))
		}
		checkIndex(t, u, math.MaxUint64)
	}
}

// recordExponential records values as programs do.
func recordExponential(u Unit, values ...uint64) *Histogram {
	h := NewExponential(u)
	for _, v := range values {
		h.Add(u.exponentialSlotOf(v), Slot{Count: 1, Sum: v, Min: v, Max: v})
	}
	return h
}

func TestExponential(t *testing.T) {
	second := uint64(1e9)
	got := recordExponential(Milliseconds, 0, 0, second, second, second+1, second/2, 3*second).Exponential()
	want := Exponential{
		Schema: 3, Count: 7, Zero: 2, Sum: 6.500000001,
		Buckets: map[int]uint64{0: 2, 1: 1, -8: 1, 13: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	bytes := recordExponential(Kilobytes, 4096, 4097).Exponential()
	if want := (Exponential{Schema: 3, Count: 2, Sum: 8193, Buckets: map[int]uint64{96: 1, 97: 1}}); !reflect.DeepEqual(bytes, want) {
		t.Errorf("bytes: %+v, want %+v", bytes, want)
	}
	mustPanic(t, func() { New(Microseconds).Exponential() })
	mustPanic(t, func() { New(Microseconds).Merge(NewExponential(Microseconds)) })
	mustPanic(t, func() { got := recordExponential(Microseconds, 1); got.AppendText(nil) })
}

// TestExponentialStatistics checks that percentiles and bounds fit to exponential slots.
func TestExponentialStatistics(t *testing.T) {
	values := randomDurations(seeded(12), 3000)
	h, linear := recordExponential(Microseconds, values...), record(New(Microseconds), values...)
	if h.Count() != linear.Count() || h.Sum() != linear.Sum() || h.Min() != linear.Min() || h.Max() != linear.Max() {
		t.Errorf("%+v, want %+v", h.Stats(), linear.Stats())
	}
	for _, b := range h.Buckets() {
		if b.Min < b.Lo || b.Max >= b.Hi {
			t.Errorf("bucket %+v", b)
		}
	}
}

// atSchema counts the values directly in buckets of a schema, by definition.
func atSchema(schema int, values ...uint64) map[int]uint64 {
	buckets := map[int]uint64{}
	for _, v := range values {
		if v == 0 {
			continue
		}
		slot := Microseconds.exponentialSlotOf(v)
		estimate, _ := Microseconds.exponentialIndex(slot)
		i := definedIndex(v, 1e9, estimate)
		buckets[int(math.Ceil(float64(i)/float64(int(1)<<(3-schema))))]++
	}
	return buckets
}

func TestDownscaleAndMerge(t *testing.T) {
	r := seeded(13)
	for range 300 {
		a, b := randomDurations(r, r.IntN(40)), randomDurations(r, r.IntN(40))
		a = append(a, 0)
		sum := recordExponential(Microseconds, a...).Exponential()
		other := recordExponential(Microseconds, b...).Exponential()
		lower := 3 - r.IntN(6)
		other.Downscale(lower)
		before := maps.Clone(other.Buckets)
		sum.Merge(other)
		all := append(a, b...)
		var n uint64
		for _, v := range all {
			if v == 0 {
				n++
			}
		}
		if sum.Schema != lower || sum.Count != uint64(len(all)) || sum.Zero != n || !maps.Equal(sum.Buckets, atSchema(lower, all...)) {
			t.Fatalf("schema %d of %v: %+v, want %v", lower, all, sum, atSchema(lower, all...))
		}
		if !maps.Equal(before, other.Buckets) {
			t.Fatalf("merge changed %v to %v", before, other.Buckets)
		}
		added := Exponential{}
		for _, v := range all {
			added.Add(v, Microseconds)
		}
		if added.Downscale(lower); added.Schema != lower || added.Zero != n || !maps.Equal(added.Buckets, sum.Buckets) {
			t.Fatalf("added one by one: %+v, want %+v", added, sum)
		}
	}
}

func TestClassic(t *testing.T) {
	r := seeded(14)
	values := append(randomDurations(r, 2000), 0, 1e9, 1e9+1, 5e8, 1953125, 1953126)
	e := recordExponential(Microseconds, values...).Exponential()
	for schema := 3; schema >= -2; schema-- {
		e.Downscale(schema)
		buckets := e.Classic(-20, 6)
		bounds := 0
		for power := -20; power <= 6; power++ {
			if schema >= 0 || power%(1<<-schema) == 0 {
				bounds++
			}
		}
		if len(buckets) != bounds {
			t.Fatalf("schema %d: %d buckets, want %d", schema, len(buckets), bounds)
		}
		for _, b := range buckets {
			var want uint64
			for _, v := range values {
				// Exact: the bounds are powers of two, and values less than 2^53 ns.
				if new(big.Rat).SetFrac64(int64(v), 1e9).Cmp(new(big.Rat).SetFloat64(b.Le)) <= 0 {
					want++
				}
			}
			if b.Count != want {
				t.Errorf("schema %d: %d values up to %v s, want %d", schema, b.Count, b.Le, want)
			}
		}
	}
}

func TestExemplars(t *testing.T) {
	h := NewExponential(Microseconds)
	if len(h.Exemplars()) != 0 {
		t.Error("an empty histogram has exemplars")
	}
	add := func(h *Histogram, ns uint64, tid uint32, at value.Time) {
		slot := h.unit.exponentialSlotOf(ns)
		e := h.unit.NewExemplar(slot, ns)
		e.TID, e.Time = tid, at
		h.AddExemplar(slot, e)
	}
	add(h, 5e8, 1, 1)
	add(h, 0, 2, 2)
	other := NewExponential(Microseconds)
	add(other, 5e8-1, 3, 3)
	add(other, 1e9, 4, 4)
	h.Merge(other)
	add(h, 1e9, 5, 1) // earlier
	var got [][2]float64
	for _, e := range h.Exemplars() {
		got = append(got, [2]float64{float64(e.TID), e.Value})
	}
	if want := [][2]float64{{2, 0}, {3, 0.499999999}, {4, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("thread and value of exemplars: %v, want %v", got, want)
	}
	if first := h.Exemplars(); !first[0].IsZero || first[1].Index != -8 || first[2].Index != 0 {
		t.Errorf("exemplars %+v", first)
	}
}

func BenchmarkMergeExponential(b *testing.B) {
	values := randomDurations(seeded(15), 3000)
	from := recordExponential(Microseconds, values...).Exponential()
	var to Exponential
	for b.Loop() {
		to.Merge(from)
	}
}
