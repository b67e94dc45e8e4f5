package funclatency

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// kernelHooks returns the attach types for functions on this kernel, as arguments of --hook.
func kernelHooks(t *testing.T, function string) []string {
	t.Helper()
	tooltest.Root(t)
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, []string{"--explain", "--output", "json", function}, &out, &errOut); code != tool.ExitOK {
		t.Fatalf("--explain: exit code %d: %s", code, &errOut)
	}
	var kinds []string
	for dec := json.NewDecoder(&out); dec.More(); {
		var attach struct{ Hook, Kind, Result string }
		if err := dec.Decode(&attach); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", attach.Kind, attach.Result)
		if attach.Result == "used" || attach.Result == "works" {
			kinds = append(kinds, attach.Hook+"="+attach.Kind)
		}
	}
	return kinds
}

// TestKernelFunction measures sleeps of a known length with each attach type, in a function that
// all kernels have.
func TestKernelFunction(t *testing.T) {
	const nap, naps = 5 * time.Millisecond, 20
	tooltest.KernelFunctions(t)
	if len(kernelHooks(t, "hrtimer_nanosleep")) == 0 {
		t.Fatal("--explain finds no attach type for hrtimer_nanosleep")
	}
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	for _, attach := range attachOptions(t, "hrtimer_nanosleep") {
		var all time.Duration
		args := append(attach, "-m", "--comm", "native", "-F", "hrtimer_nanosleep")
		res := tooltest.JSON(t, Tool, args, func() { all = run(t, path) })
		r := byFunc(res)["hrtimer_nanosleep"]
		if r.Num("count") != naps || !within(r.Num("min"), nap, all) || !within(r.Num("sum"), naps*nap, all) {
			t.Errorf("%s: %v calls that took %v … %v, want %d of %v: %v", attach, r.Num("count"), r.Num("min"), r.Num("max"), naps, nap, res.Summary)
		}
	}
}

// TestExportedKernelFunction checks that values of kernel functions, which interrupts can call, have no
// exemplars.
func TestExportedKernelFunction(t *testing.T) {
	const nap, naps = 5 * time.Millisecond, 20
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	exported := tooltest.Export(t, Tool, []string{"--comm", "native", "hrtimer_nanosleep"}, func() { run(t, path) })
	for _, h := range exported.Histograms {
		h.CheckBuckets(t)
		if e := h.Exponential; e.Count != naps || e.Sum < naps*nap.Seconds() || len(h.Exemplars) != 0 {
			t.Errorf("%d naps of %v s with exemplars %v, want %d of %v without", e.Count, e.Sum, h.Exemplars, naps, nap)
		}
	}
	if len(exported.Histograms) != 1 {
		t.Errorf("%d histograms, want 1", len(exported.Histograms))
	}
}
