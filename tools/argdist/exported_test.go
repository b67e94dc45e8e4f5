package argdist

import (
	"maps"
	"math"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestExported counts the values 1 to 1000, which are plain numbers: bucket i contains those above
// 2^((i-1)/8), up to 2^(i/8).
func TestExported(t *testing.T) {
	const n = 1000
	path := (&tooltest.Native{Touches: n}).Write(t)
	want, sum := map[int]uint64{}, 0
	for v := 1; v <= n; v++ {
		// Integers other than powers of two are not as close to a bound as 1e-9.
		want[int(math.Ceil(8*math.Log2(float64(v))-1e-9))]++
		sum += v
	}
	res := tooltest.Export(t, Tool, []string{"-i", "60", "-H", path + ":touch(arg1)"}, func() { run(t, path) })
	if len(res.Histograms) != 1 {
		t.Fatalf("%d histograms, want 1: %+v", len(res.Histograms), res.Summary)
	}
	h := res.Histograms[0]
	h.CheckBuckets(t)
	if e := h.Exponential; e.Count != n || e.Zero != 0 || e.Sum != float64(sum) || !maps.Equal(e.Buckets, want) {
		t.Errorf("%d values, sum %v, in buckets %v, want %d, %d, %v", e.Count, e.Sum, e.Buckets, n, sum, want)
	}
	if len(h.Exemplars) != 0 { // a probe can run in an interrupt
		t.Errorf("exemplars %v", h.Exemplars)
	}
}
