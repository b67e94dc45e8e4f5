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

// TestOddPath expects the exact path of a program whose name is not UTF-8 in the key of the histogram.
func TestOddPath(t *testing.T) {
	path := (&tooltest.Native{Touches: 5}).WriteOdd(t)
	res := tooltest.JSON(t, Tool, []string{"-F", path + ":touch"}, func() { run(t, path) })
	if key := byFunc(res)["touch"].Object("key"); key.Bytes(t, "module") != path {
		t.Errorf("key %v, want the module %q", key, path)
	}
}

// TestExported measures naps that take longer than a bound of buckets. An exemplar of a user function is
// of the process that called it.
func TestExported(t *testing.T) {
	const nap, naps = time.Second / 32, 8 // 2^-5 s
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	var all time.Duration
	var pid int
	run := tooltest.Export(t, Tool, []string{path + ":nap"}, func() {
		begin := time.Now()
		cmd := exec.Command(path)
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		all, pid = time.Since(begin), cmd.Process.Pid
	})
	if len(run.Histograms) != 1 {
		t.Fatalf("%d histograms, want 1: %+v", len(run.Histograms), run.Summary)
	}
	h := run.Histograms[0]
	h.CheckBuckets(t)
	h.CheckTask(t, pid)
	e := h.Exponential
	for _, b := range e.Classic(-20, 6) {
		if b.Le <= nap.Seconds() && b.Count != 0 || b.Le >= all.Seconds() && b.Count != naps {
			t.Errorf("%d naps up to %v s, all %d took longer than %v, and %v in total", b.Count, b.Le, naps, nap, all)
		}
	}
	if e.Count != naps || e.Sum < naps*nap.Seconds() || e.Sum > all.Seconds() {
		t.Errorf("%d naps of %v s, want %d of %v in %v", e.Count, e.Sum, naps, nap, all)
	}
	// 2^-5 s is the upper bound of bucket -40.
	for index := range e.Buckets {
		if index <= -40 {
			t.Errorf("naps of more than %v in bucket %d", nap, index)
		}
	}
}
