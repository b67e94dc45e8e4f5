package argdist

import (
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestExceptions counts return values in a program in which exceptions leave functions.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	res := tooltest.JSON(t, Tool, []string{"-i", "60", "-C", "r:" + path + ":tail(retval)"}, func() { tooltest.RunThrows(t, path) })
	got := map[float64]float64{}
	for _, r := range res.Rows {
		got[r.Object("args").Num("retval")] += r.Num("count")
	}
	want := map[float64]float64{}
	for i := range tooltest.ThrowsRounds {
		want[float64(i+i%2)]++
	}
	for v, n := range want {
		if got[v] != n {
			t.Errorf("%v returns of %v, want %v", got[v], v, n)
		}
	}
	if len(got) != len(want) || res.Summary.Num("lost") != 0 {
		t.Errorf("values %v, want %v: %v", got, want, res.Summary)
	}
}
