package system

import (
	"math"
	"testing"
)

func TestMaxSampleRate(t *testing.T) {
	const file = "proc/sys/kernel/perf_event_max_sample_rate"
	for text, want := range map[string]uint64{"63000\n": 63000, "x": math.MaxUint64} {
		if got := MaxSampleRate(tree(t, map[string]string{file: text})); got != want {
			t.Errorf("MaxSampleRate of %q = %d, want %d", text, got, want)
		}
	}
	if got := MaxSampleRate(t.TempDir()); got != math.MaxUint64 {
		t.Errorf("MaxSampleRate without the file = %d, want %d", got, uint64(math.MaxUint64))
	}
}
