package source

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tool"
)

func TestSampledEntries(t *testing.T) {
	cpus := uint64(ebpf.MustPossibleCPU())
	for _, test := range []struct {
		sampling tool.Sampling
		want     uint64 // samples per second
	}{
		{tool.Sampling{}, 0},
		{tool.Sampling{Frequency: 99}, 99 * cpus},
		{tool.Sampling{Frequency: 99, CPUs: []int{0, 3}}, 198},
		{tool.Sampling{Frequency: 99, Period: 1_000_000, CPUs: []int{0}}, 1001},
	} {
		if got := test.sampling.PerSecond(); got != test.want {
			t.Errorf("%+v: %d, want %d", test.sampling, got, test.want)
		}
	}
	for perSecond, want := range map[uint64]uint32{1: 1 << 12, 198: 1 << 14, 1 << 40: 1 << 20} {
		if got := sampledEntries(perSecond); got != want || want < 1<<20 && uint64(got) < 60*perSecond {
			t.Errorf("%d samples per second: %d entries, want %d", perSecond, got, want)
		}
	}
}

// TestSampledDelay checks that the stacks that wait have space in the ring buffer, if each sample has two
// of the largest size.
func TestSampledDelay(t *testing.T) {
	const largest = 5 << 10
	for _, perSecond := range []uint64{1, 49, 198, 500, 1000} {
		got := sampledDelay(perSecond)
		if waiting := got.Seconds() * float64(perSecond); got < stackDelay || got > time.Second || 2*waiting*largest > ringBytes {
			t.Errorf("%d samples per second: %v, in which %.0f samples arrive", perSecond, got, waiting)
		}
	}
	if got := sampledDelay(198); got != time.Second {
		t.Errorf("198 samples per second: %v, want a second", got)
	}
	for _, perSecond := range []uint64{0, 1 << 40} {
		if got := sampledDelay(perSecond); got != stackDelay {
			t.Errorf("%d samples per second: %v, want %v", perSecond, got, stackDelay)
		}
	}
}

// TestDrainInterval checks that no drain has more than 1,000 samples at low rates, and that none is later
// than five seconds.
func TestDrainInterval(t *testing.T) {
	for perSecond, want := range map[uint64]time.Duration{
		0: time.Second, 1: 5 * time.Second, 198: 5 * time.Second, 500: 2 * time.Second, 1000: time.Second, 1 << 40: time.Second,
	} {
		if got := drainInterval(perSecond); got != want {
			t.Errorf("%d samples per second: %v, want %v", perSecond, got, want)
		}
	}
}
