package stacktrace

import (
	"math"
	"testing"
)

func TestTableMemory(t *testing.T) {
	for machine, want := range map[uint64]int64{
		0: 64 << 20, 1 << 30: 64 << 20, 8 << 30: 128 << 20, 24 << 30: 384 << 20, 1 << 40: 512 << 20, math.MaxUint64: 512 << 20,
	} {
		if got := tableMemory(machine); got != want {
			t.Errorf("machine with %d bytes: %d, want %d", machine, got, want)
		}
	}
	if got := (&UserStacks{Memory: 7}).tableMemory(); got != 7<<20 {
		t.Errorf("--unwind-memory 7: %d bytes", got)
	}
}
