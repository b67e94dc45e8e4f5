package profile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// jitEnv makes the test binary create and run this number of functions, which are named in its perf map.
const jitEnv = "CORESCOPE_JIT"

// jitPrefix begins the names of these functions.
const jitPrefix = "jitted_"

func runJIT() {
	runtime.LockOSThread()
	count, err := strconv.Atoi(os.Getenv(jitEnv))
	jit, err2 := native.NewJIT()
	err = errors.Join(err, err2)
	for i := 0; err == nil; i++ {
		if i == count {
			os.Remove(native.PerfMap(os.Getpid()))
			os.Exit(0)
		}
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
	cmd.Env = append(os.Environ(), jitEnv+"=-1") // without end
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

// TestJITExits checks that stacks with code of a JIT compiler wake the reader although the delay has not passed:
// they can be symbolized only while the process exists.
func TestJITExits(t *testing.T) {
	tooltest.Root(t)
	slow := tool.Define(Tool.Spec, options{StackOptions: source.DefaultStacks(), Sides: source.DefaultSides(), Frequency: 49}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*source.Stacks[key, counts, row]).Delay = 100 * 365 * 24 * time.Hour
		}
		return src, err
	})
	const functions = 200
	pid := 0
	res := tooltest.JSON(t, slow, []string{"-F", "997", "-U"}, func() {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), jitEnv+"="+strconv.Itoa(functions))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("run functions: %v: %s", err, out)
		}
		pid = cmd.Process.Pid
	})
	own := slices.DeleteFunc(res.Rows, func(r tooltest.Row) bool { return r.Num("pid") != float64(pid) })
	if named, unnamed := jitted(own); named == 0 {
		t.Errorf("%.0f samples in functions of the perf map, and none has a name", unnamed)
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
