package stackcount

import (
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// descend calls inner through a path of calls from different addresses, given by the bits of path.
//
//go:noinline
func descend(lib *native.Library, path uint, depth int) (sum uint64) {
	switch {
	case depth == 0:
		sum = lib.Call("inner", native.Call{})
	case path&1 == 0:
		sum = descend(lib, path>>1, depth-1) + 1
	default:
		sum = descend(lib, path>>1, depth-1) + 2
	}
	return sum
}

// TestManyStacks counts more distinct stacks than user space caches, while some of them are still
// in use. All have the same functions, so they must be one row that counts all calls.
func TestManyStacks(t *testing.T) {
	const depth = 15
	lib := native.Open(t, "libhit.so", []string{"outer", "inner"})
	calls := 0
	res := tooltest.JSON(t, Tool, []string{"--duration", "1h", lib.Path + ":inner"}, func() {
		// Counts are drained every second, and unused stacks dropped after some drains.
		for begin := time.Now(); calls < 2<<depth || time.Since(begin) < 5*time.Second; {
			for path := range uint(1 << depth) {
				descend(lib, path, depth)
				calls++
				if path%64 == 0 { // the buffer holds only some thousands of stacks
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
	counts := 0
	for _, r := range res.Rows {
		for _, symbol := range symbols(r, "user_stack") {
			if symbol == "[lost stack]" {
				t.Errorf("a stack was dropped: %v", r)
			}
		}
		counts += int(r.Num("count"))
	}
	lost := tooltest.Lost(res.Summary)
	t.Logf("%d rows, %d calls, %d lost", len(res.Rows), calls, lost)
	if counts != calls {
		t.Errorf("%d calls were counted, want %d", counts, calls)
	}
	if lost == 0 && len(res.Rows) > 2 {
		t.Errorf("%d rows", len(res.Rows))
	}
}
