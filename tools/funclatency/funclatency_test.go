package funclatency

import (
	"os/exec"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

func run(t testing.TB, path string) {
	t.Helper()
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run %s: %v: %s", path, err, out)
	}
}

func byFunc(res *tooltest.Result) map[string]tooltest.Row {
	out := map[string]tooltest.Row{}
	for _, h := range res.Histograms {
		out[h.Object("key").Str("func")] = h
	}
	return out
}

// near tells whether ms is at least want, and not much more: the machine may be busy.
func near(ms float64, want time.Duration) bool {
	return ms >= want.Seconds()*1000 && ms <= want.Seconds()*1000+60
}

// Calls within calls are each counted, with the time of those within.
func TestRecursion(t *testing.T) {
	const nap = 20 * time.Millisecond
	path := (&tooltest.Native{Touches: 1000, Depth: 5, Naps: 3, Nap: nap}).Write(t)
	for _, way := range [][]string{nil, {"--hook", "user=uprobe"}} {
		res := tooltest.JSON(t, Tool, append(way, "-F", "-m", path+":*"), func() { run(t, path) })
		got := byFunc(res)
		for name, want := range map[string]float64{"touch": 1000, "recurse": 5, "nap": 8} {
			if n := got[name].Num("count"); n != want {
				t.Errorf("%s: %v calls of %s, want %v", way, n, name, want)
			}
		}
		if r := got["recurse"]; !near(r.Num("min"), nap) || !near(r.Num("max"), 5*nap) || !near(r.Num("sum"), 15*nap) {
			t.Errorf("%s: recurse took %v … %v, %v in all", way, r.Num("min"), r.Num("max"), r.Num("sum"))
		}
		if r := got["nap"]; !near(r.Num("min"), nap) || !near(r.Num("p50"), nap) {
			t.Errorf("%s: nap took %v … %v", way, r.Num("min"), r.Num("max"))
		}
		if r := got["touch"]; r.Num("p50") > 1 {
			t.Errorf("%s: touch took %v", way, r.Num("p50"))
		}
		if n := res.Summary.Object("counters").Num("no_begin"); n != 0 || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: summary is %v", way, res.Summary)
		}
	}
}
