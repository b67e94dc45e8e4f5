package funcslower

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
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

// hooks returns the options that force each attach type of user functions: the default is multi from 6.6 on.
func hooks() [][]string { return tooltest.ArgVariants([]string{"--hook", "user=uprobe"}) }

func hexadecimal(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestArguments shows all calls of a function with known arguments and return values.
func TestArguments(t *testing.T) {
	const n = 300
	path := (&tooltest.Native{Touches: n}).Write(t)
	for _, hook := range hooks() {
		res := tooltest.JSON(t, Tool, append(hook, "-m", "0", "-a", "2", path+":touch"), func() { run(t, path) })
		if len(res.Events) != n || res.Summary.Num("lost") != 0 {
			t.Fatalf("%s: %d rows, want %d: %v", hook, len(res.Events), n, res.Summary)
		}
		for i, r := range res.Events {
			args, want := r.List("args"), uint64(n-i)
			if len(args) != 2 || hexadecimal(t, args[0]) != want || int32(hexadecimal(t, args[1])) != -100 || hexadecimal(t, r.Str("retval")) != want+1 {
				t.Fatalf("%s: row %d is %v, want the argument %d", hook, i, r, want)
			}
		}
	}
	// Without -a there are no arguments.
	res := tooltest.JSON(t, Tool, []string{"-u", "0", path + ":touch"}, func() { run(t, path) })
	if len(res.Events) != n || res.Events[0].Has("args") {
		t.Errorf("%d rows, the first is %v", len(res.Events), res.Events[0])
	}
}

// TestThreshold traces nested calls of known length, and with a threshold that none of them reaches.
func TestThreshold(t *testing.T) {
	const nap, least = 20 * time.Millisecond, 15 * time.Millisecond
	path := (&tooltest.Native{Touches: 10, Depth: 5, Naps: 3, Nap: nap}).Write(t)
	for _, hook := range hooks() {
		var all time.Duration
		args := append(hook, "-m", fmt.Sprint(least), path+":recurse", path+":na*", path+":touch")
		res := tooltest.JSON(t, Tool, args, func() { all = run(t, path) })
		calls := map[string]int{}
		for _, r := range res.Events {
			name, took := r.Str("func"), time.Duration(r.Num("latency_ns"))
			calls[name]++
			want := least
			switch name {
			case "nap":
				want = nap
			case "recurse": // the innermost call returns first
				want = time.Duration(calls[name]) * nap
			}
			if took < want || took > all || r.Str("module") != path {
				t.Errorf("%s: %v, want at least %v in %v", hook, r, want, all)
			}
		}
		if calls["nap"] != 8 || calls["recurse"] != 5 || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: calls %v, want 8 of nap and 5 of recurse: %v", hook, calls, res.Summary)
		}
	}
	res := tooltest.JSON(t, Tool, []string{"-u", "3600s", path + ":*"}, func() { run(t, path) })
	if c := res.Summary.Object("counters"); len(res.Events) != 0 || c.Num("no_begin") != 0 {
		t.Errorf("%v: %v", res.Events, res.Summary)
	}
}

// TestUserStack checks the callers of calls at different depths. Without frame pointers and unwind
// tables, only the direct caller is known.
func TestUserStack(t *testing.T) {
	path := (&tooltest.Native{Depth: 3, Naps: 1}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-m", "0", "-U", path + ":nap"}, func() { run(t, path) })
	var got []string
	for _, r := range res.Events {
		names := r.Symbols("user_stack")
		if r.Has("kernel_stack") {
			t.Errorf("kernel stack without -K: %v", r)
		}
		names = slices.DeleteFunc(names, func(s string) bool { return s == "nap" })
		got = append(got, strings.Join(names[:min(1, len(names))], ""))
	}
	want := []string{"recurse", "recurse", "recurse", "_start"}
	if !slices.Equal(got, want) {
		t.Errorf("callers of nap are %q, want %q", got, want)
	}
}

// TestText checks the titles of BCC, the unit, and folded stacks.
func TestText(t *testing.T) {
	path := (&tooltest.Native{Touches: 1, Depth: 2}).Write(t)
	for _, tc := range []struct {
		args        []string
		title, want string
	}{
		{[]string{"-m", "0"}, "COMM PID LAT(ms) RVAL FUNC", "recurse"},
		{[]string{"-u", "0", "-a", "1", "-U", "-f"}, "COMM PID LAT(us) RVAL FUNC ARGS", "\n    _start;touch\n"},
		{[]string{"-T", "-t", "-m", "0", "-U"}, "TIME TIME(s) COMM PID LAT(ms) RVAL FUNC", "\n    recurse"},
	} {
		out := tooltest.Text(t, Tool, append(tc.args, path+":*"), func() { run(t, path) })
		title, rows, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(title), " "); got != tc.title || !strings.Contains(rows, tc.want) {
			t.Errorf("%q: the title is %q, want %q with %q: %s", tc.args, got, tc.title, tc.want, rows)
		}
	}
}

// TestExceptions traces functions that exceptions and the cancellation of a thread leave: the
// program is not affected, and calls that do not return are counted.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	var left uint64
	for _, n := range tooltest.ThrowsLeft() {
		left += n
	}
	res := tooltest.JSON(t, Tool, []string{"-m", "0", "-r", path + ":(throws|passes|tail|several|naps|waits)$"}, func() { tooltest.RunThrows(t, path) })
	got := map[string]uint64{}
	for _, r := range res.Events {
		got[r.Str("func")]++
	}
	for name, want := range tooltest.ThrowsReturned() {
		if got[name] != want {
			t.Errorf("%d returns of %s, want %d", got[name], name, want)
		}
	}
	if c := res.Summary.Object("counters"); c.Num("no_return") != float64(left) || c.Num("no_begin") != 0 || res.Summary.Num("lost") != 0 {
		t.Errorf("summary is %v, want %d calls without return", res.Summary, left)
	}
}

// TestKernelFunction measures sleeps of a known length.
func TestKernelFunction(t *testing.T) {
	const nap, naps = 5 * time.Millisecond, 20
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: naps, Nap: nap}).Write(t)
	for _, hook := range [][]string{nil, {"--hook", "kernel=kprobe"}} {
		var all time.Duration
		args := append(hook, "-m", fmt.Sprint(nap), "-K", "-a", "6", "--comm", "native", "hrtimer_nanosleep")
		res := tooltest.JSON(t, Tool, args, func() { all = run(t, path) })
		if len(res.Events) != naps || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: %d rows, want %d: %v", hook, len(res.Events), naps, res.Summary)
		}
		noStack := res.Summary.Object("counters").Num("no_stack")
		for _, r := range res.Events {
			took := time.Duration(r.Num("latency_ns"))
			names := strings.Join(r.Symbols("kernel_stack"), " ")
			if took < nap || took > all || r.Str("retval") != "0x0" || len(r.List("args")) != 6 ||
				!strings.Contains(names, "sys") && (noStack != naps || !strings.HasSuffix(names, "kretprobe_trampoline")) {
				t.Errorf("%s: row %v", hook, r)
			}
		}
	}
}

// TestRefused checks the messages for what cannot be measured.
func TestRefused(t *testing.T) {
	tooltest.Root(t)
	for line, want := range map[string]string{
		"r:vfs_read":             "prefix r: is not supported",
		"t:sched:sched_switch":   "only functions",
		"vfs_read+4":             "offset",
		"-m 5 -u 3 vfs_read":     "--min-us and --min-ms 5ms cannot be combined",
		"-a 7 vfs_read":          "it must be 1 to 6",
		"nosuchfunctionanywhere": "not found",
	} {
		var out bytes.Buffer
		if code := tool.Run(t.Context(), Tool, strings.Fields(line), &out, &out); code != tool.ExitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, want %q: %s", line, code, want, out.String())
		}
	}
}
