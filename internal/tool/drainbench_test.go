package tool

import (
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/histogram"
)

// BenchmarkDrain takes an interval's histograms out of a map of the size that tools have,
// each of one slot.
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
			h := &Hists[key, key]{Unit: histogram.Microseconds, Label: func(k key) key { return k }}
			for b.Loop() {
				b.StopTimer()
				if _, err := m.BatchUpdate(keys, values, nil); err != nil {
					b.Fatal(err)
				}
				h.hists = map[key]*histogram.Histogram{}
				b.StartTimer()
				if err := h.drainKeyed(m, func(uint32) bool { return true }, true); err != nil {
					b.Fatal(err)
				}
			}
			if len(h.hists) != n {
				b.Fatalf("%d histograms, want %d", len(h.hists), n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
		})
	}
}
