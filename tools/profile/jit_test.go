package profile

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// jitEnv makes the test binary create and run functions, which are named in its perf map.
const jitEnv = "CORESCOPE_JIT"

// jitPrefix begins the names of these functions.
const jitPrefix = "jitted_"

func runJIT() {
	runtime.LockOSThread()
	jit, err := native.NewJIT()
	for i := 0; err == nil; i++ {
		const iterations = 1 << 21
		err = jit.Run(jitPrefix+strconv.Itoa(i), iterations)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestJIT checks that code is named that a JIT compiler creates between two readings of its perf
// map, as CPython (-X perf) and V8 (--perf-basic-prof) do all the time: each function is written to
// the perf map before it is called, and runs for a few milliseconds.
func TestJIT(t *testing.T) {
	tooltest.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jitEnv+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		os.Remove(native.PerfMap(cmd.Process.Pid))
	})
	args := []string{"-F", "997", "-U", "--interval", "500ms", "--pid", strconv.Itoa(cmd.Process.Pid)}
	const enough = 100
	res := tooltest.JSONUntil(t, Tool, args, func(rows []tooltest.Row) bool {
		named, unnamed := jitted(rows)
		return named+unnamed > enough
	}, func(more func() bool) {
		for more() {
			time.Sleep(10 * time.Millisecond)
		}
	})
	if named, unnamed := jitted(res.Rows); unnamed > 0 || named <= enough {
		t.Errorf("%.0f samples in functions of the perf map have their name, %.0f have none", named, unnamed)
	}
}

// jitted counts the samples in functions that are named in the perf map, with and without the name.
func jitted(rows []tooltest.Row) (named, unnamed float64) {
	for _, r := range rows {
		frames, _ := r["user_stack"].([]any)
		if len(frames) == 0 {
			continue
		}
		leaf, _ := frames[0].(map[string]any)
		symbol, isNamed := leaf["symbol"].(string)
		switch {
		case !isNamed:
			unnamed += r.Num("count")
		case strings.HasPrefix(symbol, jitPrefix):
			named += r.Num("count")
		}
	}
	return named, unnamed
}
