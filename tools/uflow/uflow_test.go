package uflow

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// calls hits the probes of methods on one thread: ">name" at an entry, "<name" at a return.
func calls(lib *native.Library, provider string, class uint64, all ...string) func() {
	return func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for _, c := range all {
			probe := map[byte]string{'>': "entry", '<': "return"}[c[0]]
			lib.Call(provider+"__"+probe, native.Call{Args: [7]uint64{class, languagetest.Name(c[1:])}, Sleep: time.Millisecond})
		}
	}
}

func python(t *testing.T) *native.Library {
	t.Helper()
	return languagetest.Open(t, "python", "python:function__entry", "python:function__return")
}

func flows(res *tooltest.Result) (all []string) {
	for _, r := range res.Events {
		all = append(all, fmt.Sprint(r.Str("flow"), " ", r.Num("depth")))
	}
	return all
}

// TestDepth has nested calls, one that is left without a return, and one that was not entered.
func TestDepth(t *testing.T) {
	lib := python(t)
	res := tooltest.JSON(t, Tool, self(), calls(lib, "python:function", languagetest.Name("x"), "<before", ">a", ">b", ">b", ">left", "<b", "<b", ">c", "<c", "<a", ">d"))
	want := []string{
		"<- x.before 0", "-> x.a 0", "  -> x.b 1", "    -> x.b 2", "      -> x.left 3", "    <- x.b 2", "  <- x.b 1", "  -> x.c 1", "  <- x.c 1",
		"<- x.a 0", "-> x.d 0",
	}
	if got := flows(res); !slices.Equal(got, want) {
		t.Errorf("flow %q, want %q", got, want)
	}
	for i, r := range res.Events {
		took := r.Num("delta_ns")
		if returned := r["is_return"] == true; returned != strings.Contains(want[i], "<-") || (r["unseen"] == true) != (i == 0) ||
			r.Has("delta_ns") != (returned && i > 0) || returned && i > 0 && (took < 1e6 || took > 1e10) || r.Str("language") != "python" {
			t.Errorf("row %d: %v", i, r)
		}
	}
	counters := res.Summary.Object("counters")
	if counters.Num("no_return") != 2 || counters.Num("unseen_calls") != 1 {
		t.Errorf("counters %v, want 2 calls without a return and 1 unseen", counters)
	}
}

// TestPrefixes shows some methods only, with their own depth.
func TestPrefixes(t *testing.T) {
	lib := python(t)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"-M", "ge"}, []string{"-> file.get 0", "  -> file.ge 1", "  <- file.ge 1", "<- file.get 0"}},
		{[]string{"-C", "fil", "-M", "get"}, []string{"-> file.get 0", "<- file.get 0"}},
		{[]string{"-C", "file2"}, nil},
	} {
		res := tooltest.JSON(t, Tool, self(tt.args...), calls(lib, "python:function", languagetest.Name("file"), ">g", ">get", ">ge", "<ge", "<get", "<g"))
		if got := flows(res); !slices.Equal(got, tt.want) {
			t.Errorf("%q: flow %q, want %q", tt.args, got, tt.want)
		}
	}
}

// TestText checks the header of BCC.
func TestText(t *testing.T) {
	lib := languagetest.Open(t, "ruby", "ruby:cmethod__entry", "ruby:cmethod__return")
	out := tooltest.Text(t, Tool, self("-l", "ruby"), calls(lib, "ruby:cmethod", languagetest.Name("Integer"), ">times", ">each", "<each", "<times"))
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "CPU PID TID TIME(s) METHOD" || !strings.HasSuffix(lines[2], "   -> Integer.each") {
		t.Errorf("text is %q", out)
	}
}

// TestPHP compares with a program of PHP.
func TestPHP(t *testing.T) {
	path := languagetest.Interpreter(t, "php:function__entry", "php", "php8.2", "php8.4")
	res, _ := languagetest.Run(t, Tool, nil, path, "-n", "-r", `
class A { static function inner() {} static function outer() { A::inner(); A::inner(); } }
echo "ready\n"; fgets(STDIN); A::outer();`)
	want := []string{"-> A.outer 0", "  -> A.inner 1", "  <- A.inner 1", "  -> A.inner 1", "  <- A.inner 1", "<- A.outer 0"}
	if got := flows(res); !slices.Equal(got, want) {
		t.Errorf("flow %q, want %q", got, want)
	}
}

// TestPython shows the functions of a program, at least their returns.
func TestPython(t *testing.T) {
	path := languagetest.Interpreter(t, "python:function__return", "/usr/bin/python3", "python3")
	res, _ := languagetest.Run(t, Tool, []string{"-M", "flow_"}, path, "-c", `
def flow_inner(): pass
def flow_outer(): flow_inner(); flow_inner()
print("ready", flush=True); input()
flow_outer()`)
	var got []string
	for _, r := range res.Where(func(r tooltest.Row) bool { return r["is_return"] == true }) {
		got = append(got, r.Str("method"))
	}
	if want := []string{"flow_inner", "flow_inner", "flow_outer"}; !slices.Equal(got, want) {
		t.Errorf("returns of %q, want %q", got, want)
	}
}
