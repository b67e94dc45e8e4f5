package source

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/histogram"
)

// newPlain returns the map "hists_plain", and a value with one count on each CPU.
func newPlain(t testing.TB) (*ebpf.Map, []histSlots) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make BPF maps")
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(histSlots{})), MaxEntries: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	once := make([]histSlots, ebpf.MustPossibleCPU())
	for i := range once {
		once[i].Slots[i%len(once[i].Slots)].Count = 1
	}
	return m, once
}

// newHists returns histograms whose labels are their keys.
func newHists[K comparable]() *hists {
	return &hists{
		unit: histogram.Microseconds, entry: reflect.TypeFor[histEntry[K]](),
		labelOf: func(key unsafe.Pointer) any { return *(*K)(key) },
		byLabel: map[any]*histogram.Histogram{},
	}
}

// TestDrainPlain checks that the counts of all CPUs are drained once, for the epoch that has ended.
func TestDrainPlain(t *testing.T) {
	m, once := newPlain(t)
	for epoch := range uint32(2) {
		if err := m.Put(epoch, once); err != nil {
			t.Fatal(err)
		}
	}
	h := newHists[struct{}]()
	for range 2 {
		if err := h.drainPlain(m, func(epoch uint32) bool { return epoch == 1 }); err != nil {
			t.Fatal(err)
		}
		if n := h.byLabel[struct{}{}].Count(); n != uint64(len(once)) {
			t.Errorf("%d on %d CPUs", n, len(once))
		}
	}
	var left [2][]histSlots
	for epoch := range left {
		if err := m.Lookup(uint32(epoch), &left[epoch]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(left[0], once) || !slices.Equal(left[1], make([]histSlots, len(once))) {
		t.Error("the drain did not clear exactly the epoch that has ended")
	}
}

func BenchmarkDrainPlain(b *testing.B) {
	m, once := newPlain(b)
	h := newHists[struct{}]()
	for b.Loop() {
		if err := h.drainPlain(m, func(epoch uint32) bool { return epoch == 1 }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(once)), "ns/CPU")
}

// BenchmarkDrain drains the histograms of an interval, of one slot each, from a map of the default
// size.
func BenchmarkDrain(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root to make BPF maps")
	}
	type key struct{ PID, CPU uint64 }
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, Flags: unix.BPF_F_NO_PREALLOC, MaxEntries: 1 << 20, KeySize: 24, ValueSize: 32,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for _, n := range []int{1, 100, 10_000} {
		keys, values := make([]histEntry[key], n), make([]histogram.Slot, n)
		for i := range keys {
			keys[i].Key.PID = uint64(i)
			values[i].Count = 1
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := newHists[key]()
			for b.Loop() {
				b.StopTimer()
				if _, err := m.BatchUpdate(keys, values, nil); err != nil {
					b.Fatal(err)
				}
				h.byLabel = map[any]*histogram.Histogram{}
				b.StartTimer()
				if err := h.drainKeyed(m, func(uint32) bool { return true }, true); err != nil {
					b.Fatal(err)
				}
			}
			if len(h.byLabel) != n {
				b.Fatalf("%d histograms, want %d", len(h.byLabel), n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
		})
	}
}
