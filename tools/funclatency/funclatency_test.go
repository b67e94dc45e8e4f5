package funclatency

import (
	"os/exec"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// run runs the program and returns its duration.
func run(t testing.TB, path string) time.Duration {
	t.Helper()
	start := time.Now()
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run %s: %v: %s", path, err, out)
	}
	return time.Since(start)
}

// attachOptions returns the options that force each attach type for functions on this kernel, the
// first one empty; with -short only that.
func attachOptions(t *testing.T, function string) [][]string {
	t.Helper()
	all := [][]string{nil}
	for _, w := range kernelHooks(t, function) {
		if !testing.Short() {
			all = append(all, []string{"--hook", w})
		}
	}
	return all
}

func byFunc(res *tooltest.Result) map[string]tooltest.Row {
	out := map[string]tooltest.Row{}
	for _, h := range res.Histograms {
		out[h.Object("key").Str("func")] = h
	}
	return out
}

// within reports whether ms is between two durations.
func within(ms float64, low, high time.Duration) bool {
	return ms >= low.Seconds()*1000 && ms <= high.Seconds()*1000
}

// TestRecursion checks that each nested call is counted, with the time of the calls within it.
func TestRecursion(t *testing.T) {
	const nap = 20 * time.Millisecond
	path := (&tooltest.Native{Touches: 1000, Depth: 5, Naps: 3, Nap: nap}).Write(t)
	for _, attach := range attachOptions(t, path+":nap") {
		var all time.Duration
		res := tooltest.JSON(t, Tool, append(attach, "-F", "-m", path+":*"), func() { all = run(t, path) })
		got := byFunc(res)
		for name, want := range map[string]float64{"touch": 1000, "recurse": 5, "nap": 8} {
			if n := got[name].Num("count"); n != want {
				t.Errorf("%s: %v calls of %s, want %v", attach, n, name, want)
			}
		}
		if r := got["recurse"]; !within(r.Num("min"), nap, all) || !within(r.Num("max"), 5*nap, all) || !within(r.Num("sum"), 15*nap, 5*all) {
			t.Errorf("%s: recurse took %v to %v, %v in total", attach, r.Num("min"), r.Num("max"), r.Num("sum"))
		}
		if r := got["nap"]; !within(r.Num("min"), nap, all) || !within(r.Num("sum"), 8*nap, all) {
			t.Errorf("%s: nap took %v … %v", attach, r.Num("min"), r.Num("max"))
		}
		if r := got["touch"]; r.Num("p50") > 1 {
			t.Errorf("%s: touch took %v", attach, r.Num("p50"))
		}
		if n := res.Summary.Object("counters").Num("no_begin"); n != 0 || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: summary is %v", attach, res.Summary)
		}
	}
}
