package funclatency

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// works are the ways to a function that this kernel has, as --hook takes them.
func works(t *testing.T, function string) []string {
	t.Helper()
	tooltest.Root(t)
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, []string{"--explain", "--output", "json", function}, &out, &errOut); code != tool.ExitOK {
		t.Fatalf("--explain: exit code %d: %s", code, &errOut)
	}
	var kinds []string
	for dec := json.NewDecoder(&out); dec.More(); {
		var way struct{ Hook, Kind, Result string }
		if err := dec.Decode(&way); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", way.Kind, way.Result)
		if way.Result == "taken" || way.Result == "works" {
			kinds = append(kinds, way.Hook+"="+way.Kind)
		}
	}
	return kinds
}

// Sleeps of a known length, in a function that every kernel has, by each way there is.
func TestKernelFunction(t *testing.T) {
	const nap, naps = 5 * time.Millisecond, 20
	if len(works(t, "hrtimer_nanosleep")) == 0 {
		t.Skip("this kernel has no way to a kernel function, says --explain")
	}
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	for _, way := range ways(t, "hrtimer_nanosleep") {
		var all time.Duration
		args := append(way, "-m", "--comm", "native", "-F", "hrtimer_nanosleep")
		res := tooltest.JSON(t, Tool, args, func() { all = run(t, path) })
		r := byFunc(res)["hrtimer_nanosleep"]
		if r.Num("count") != naps || !within(r.Num("min"), nap, all) || !within(r.Num("sum"), naps*nap, all) {
			t.Errorf("%s: %v calls that took %v … %v, want %d of %v: %v", way, r.Num("count"), r.Num("min"), r.Num("max"), naps, nap, res.Summary)
		}
	}
}
