package histogram

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"testing"
)

var units = []Unit{Nanoseconds, Microseconds, Milliseconds, Kilobytes}

// definedSlot is an independent definition of slots, in terms of the leading bit.
func definedSlot(x uint64) int {
	if x < 16 {
		return int(x)
	}
	e := bits.Len64(x) - 1
	return (e-3)*16 + int(x>>(e-4)&15)
}

// definedFixedPoint returns ns * 2^n / unit, where n is 0, 10 or 20, computed without overflow.
func definedFixedPoint(u Unit, ns uint64) uint64 {
	n := map[Unit]uint{Nanoseconds: 0, Microseconds: 10, Milliseconds: 20, Kilobytes: 10}[u]
	x := new(big.Int).Lsh(new(big.Int).SetUint64(ns), n)
	x.Div(x, new(big.Int).SetUint64(uint64(u)))
	if !x.IsUint64() {
		panic(fmt.Sprintf("%d ns: %v overflows uint64", ns, x))
	}
	return x.Uint64()
}

func TestSlotOfIsInverseOfBounds(t *testing.T) {
	var next uint64
	for slot := 0; slot <= lastSlot; slot++ {
		lo, hi := Bounds(slot)
		if lo != next || hi <= lo {
			t.Fatalf("Bounds(%d) = %d, %d, want lower bound %d", slot, lo, hi, next)
		}
		last := hi - 1
		if slot == lastSlot {
			last = hi
		}
		for _, x := range []uint64{lo, last} {
			if SlotOf(x) != slot || definedSlot(x) != slot {
				t.Errorf("SlotOf(%d) = %d, want %d", x, SlotOf(x), slot)
			}
		}
		next = hi
	}
	if next != math.MaxUint64 {
		t.Errorf("slots end at %d, want math.MaxUint64", next)
	}
}

func TestInvalidSlotPanics(t *testing.T) {
	for _, slot := range []int{-1, lastSlot + 1} {
		mustPanic(t, func() { Bounds(slot) })
		mustPanic(t, func() { New(Microseconds).Add(slot, Slot{Count: 1}) })
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic, want one")
		}
	}()
	f()
}

func TestUnitBounds(t *testing.T) {
	for _, u := range units {
		var next uint64
		for slot := 0; slot <= u.SlotOf(math.MaxUint64); slot++ {
			lo, hi := u.Bounds(slot)
			if lo != next || hi < lo {
				t.Fatalf("%v: Bounds(%d) = %d, %d, want lower bound %d", u, slot, lo, hi, next)
			}
			next = hi
			if lo == hi {
				continue // no whole nanosecond is in the slot
			}
			if u.SlotOf(lo) != slot || u.SlotOf(hi-1) != slot {
				t.Errorf("%v: slot %d has bounds %d, %d, which are in slots %d, %d", u, slot, lo, hi, u.SlotOf(lo), u.SlotOf(hi-1))
			}
			if hi != math.MaxUint64 && (hi-1-lo) > lo/16 {
				t.Errorf("%v: slot %d from %d to %d is wider than a sixteenth of its value", u, slot, lo, hi-1)
			}
		}
		if next != math.MaxUint64 {
			t.Errorf("%v: slots end at %d, want math.MaxUint64", u, next)
		}
	}
}

func TestSlotsNestInPowersOfTwo(t *testing.T) {
	for _, u := range units {
		for edge := uint64(u); edge < 1<<62; edge *= 2 {
			if lo, _ := u.Bounds(u.SlotOf(edge)); lo != edge {
				t.Errorf("%v: the slot of %d starts at %d", u, edge, lo)
			}
		}
	}
}

func FuzzSlotOf(f *testing.F) {
	for shift := range 64 {
		f.Add(uint64(1)<<shift, uint64(1)<<shift-1)
	}
	f.Add(uint64(math.MaxUint64), uint64(math.MaxInt64))
	f.Add(uint64(1<<50-1), uint64(1<<50+1))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		if a > b {
			a, b = b, a
		}
		if SlotOf(a) != definedSlot(a) {
			t.Errorf("SlotOf(%d) = %d, want %d", a, SlotOf(a), definedSlot(a))
		}
		for _, u := range units {
			slot := u.SlotOf(a)
			if a <= math.MaxInt64 && slot != definedSlot(definedFixedPoint(u, a)) {
				t.Errorf("%v: SlotOf(%d) = %d", u, a, slot)
			}
			if slot > u.SlotOf(b) {
				t.Errorf("%v: SlotOf(%d) = %d > SlotOf(%d) = %d", u, a, slot, b, u.SlotOf(b))
			}
			if lo, hi := u.Bounds(slot); a < lo || a >= hi && hi != math.MaxUint64 {
				t.Errorf("%v: %d is in slot %d of %d..%d", u, a, slot, lo, hi)
			}
		}
	})
}
