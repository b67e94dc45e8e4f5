package funcinterval

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// run runs the program and returns its duration.
func run(t *testing.T, path string) time.Duration {
	t.Helper()
	start := time.Now()
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run %s: %v: %s", path, err, out)
	}
	return time.Since(start)
}

func byFunc(res *tooltest.Result) map[string]tooltest.Row {
	out := map[string]tooltest.Row{}
	for _, h := range res.Histograms {
		out[h.Object("key").Str("func")] = h
	}
	return out
}

// TestUserFunctions measures functions with known numbers of calls. Each nap but those of recurse
// lasts a known time, which is the interval to the next.
func TestUserFunctions(t *testing.T) {
	const nap, naps = 20 * time.Millisecond, 6
	path := (&tooltest.Native{Touches: 1000, Naps: naps, Nap: nap}).Write(t)
	hooks := [][]string{nil, {"--hook", "user=uprobe"}}
	if testing.Short() {
		hooks = hooks[:1]
	}
	for _, hook := range hooks {
		var all time.Duration
		res := tooltest.JSON(t, Tool, append(hook, "-F", path+":*"), func() { all = run(t, path) })
		got := byFunc(res)
		for name, want := range map[string]float64{"touch": 999, "nap": naps - 1, "_start": 0} {
			if n := got[name].Num("count"); n != want {
				t.Errorf("%s: %v intervals of %s, want %v", hook, n, name, want)
			}
		}
		if r := got["nap"]; r.Num("min") < float64(nap) || r.Num("max") > float64(all) || r.Num("sum") > float64(all) {
			t.Errorf("%s: the intervals of nap are %v to %v ns in %v", hook, r.Num("min"), r.Num("max"), all)
		}
		if r := got["touch"]; r.Num("sum") > float64(all) {
			t.Errorf("%s: the intervals of touch are %v ns in %v", hook, r.Num("sum"), all)
		}
		if c := res.Summary.Object("counters"); c.Num("first") != 3 || c.Num("simultaneous") != 0 || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: summary is %v", hook, res.Summary)
		}
	}
}

// TestReturns measures from return to return, in microseconds and one histogram.
func TestReturns(t *testing.T) {
	const nap = 10 * time.Millisecond
	path := (&tooltest.Native{Naps: 4, Nap: nap}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-u", "r:" + path + ":nap"}, func() { run(t, path) })
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 3 || res.Histograms[0].Num("min") < float64(nap.Microseconds()) {
		t.Errorf("%v, want 3 intervals of at least %v", res.Histograms, nap)
	}
}

// TestTasks measures the calls of two processes together: the intervals of both are those of one
// sequence, whose sum is at most the time that passes.
func TestTasks(t *testing.T) {
	path := (&tooltest.Native{Touches: 3000}).Write(t)
	start := time.Now()
	res := tooltest.JSON(t, Tool, []string{path + ":touch"}, func() {
		first, second := exec.Command(path), exec.Command(path)
		for _, cmd := range []*exec.Cmd{first, second} {
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
		}
		for _, cmd := range []*exec.Cmd{first, second} {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
	all := time.Since(start)
	h, c := res.Histograms[0], res.Summary.Object("counters")
	if n := h.Num("count") + c.Num("first") + c.Num("simultaneous"); n != 6000 || res.Summary.Num("lost") != 0 {
		t.Errorf("%v calls, want 6000: %v", n, res.Summary)
	}
	if h.Num("sum") > float64(all) {
		t.Errorf("the intervals are %v ns in %v", h.Num("sum"), all)
	}
}

// TestTracepoint measures a system call of this process.
func TestTracepoint(t *testing.T) {
	tooltest.Tracefs(t)
	tooltest.SystemCallTracepoints(t)
	const n = 500
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), "t:syscalls:sys_enter_getppid"}, func() {
		for range n {
			unix.Getppid()
		}
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != n-1 {
		t.Errorf("%v, want %d intervals", res.Histograms, n-1)
	}
}

// TestUSDT measures a USDT probe.
func TestUSDT(t *testing.T) {
	lib := native.Open(t, "libprobes.so", []string{"alpha"}, native.Probe{Function: "alpha", Provider: "corescope", Name: "first"})
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), "u:" + lib.Path + ":first"}, func() {
		for range 20 {
			lib.Call("alpha", native.Call{})
		}
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 19 {
		t.Errorf("%v, want 19 intervals", res.Histograms)
	}
}

// TestKernelFunction measures sleeps of a known length.
func TestKernelFunction(t *testing.T) {
	const nap, naps = 5 * time.Millisecond, 20
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	var all time.Duration
	res := tooltest.JSON(t, Tool, []string{"--comm", "native", "-F", "hrtimer_nanosleep"}, func() { all = run(t, path) })
	if r := byFunc(res)["hrtimer_nanosleep"]; r.Num("count") != naps-1 || r.Num("min") < float64(nap) || r.Num("sum") > float64(all) {
		t.Errorf("%v, want %d intervals of at least %v in %v: %v", r, naps-1, nap, all, res.Summary)
	}
}
