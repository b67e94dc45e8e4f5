package ucalls

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func self(more ...string) []string { return append(more, "--pid", fmt.Sprint(os.Getpid())) }

// on runs f on one thread, as an interpreter does.
func on(f func()) func() {
	return func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}
}

// methods are the probes of each language, and the arguments for the method that function names.
func methods() map[string]struct {
	probes   []string
	args     [7]uint64
	function string
} {
	return map[string]struct {
		probes   []string
		args     [7]uint64
		function string
	}{
		"java":   {[]string{"hotspot:method__entry", "hotspot:method__return"}, [7]uint64{1, languagetest.Name("a/Class and more"), 7, languagetest.Name("method and more"), 6}, "a/Class.method"},
		"perl":   {[]string{"perl:sub__entry", "perl:sub__return"}, [7]uint64{languagetest.Name("sub"), languagetest.Name("file"), 1, languagetest.Name("Package")}, "Package.sub"},
		"php":    {[]string{"php:function__entry", "php:function__return"}, [7]uint64{languagetest.Name("f"), languagetest.Name("file"), 1, languagetest.Name(""), languagetest.Name("")}, "f"},
		"python": {[]string{"python:function__entry", "python:function__return"}, [7]uint64{languagetest.Name("a.py"), languagetest.Name("f\xff"), 3}, "a.py.f\ufffd"},
		"ruby":   {[]string{"ruby:method__entry", "ruby:method__return", "ruby:cmethod__entry", "ruby:cmethod__return"}, [7]uint64{languagetest.Name("Class"), languagetest.Name("m")}, "Class.m"},
		"tcl":    {[]string{"tcl:proc__entry", "tcl:proc__return"}, [7]uint64{languagetest.Name("proc"), 1}, "proc"},
	}
}

// TestLanguages calls a method of each language a known number of times.
func TestLanguages(t *testing.T) {
	for language, m := range methods() {
		t.Run(language, func(t *testing.T) {
			lib := languagetest.Open(t, language, m.probes...)
			for i, args := range [][]string{self(), self("--latency")} {
				res := tooltest.JSON(t, Tool, args, on(func() {
					for range 7 {
						for _, probe := range m.probes {
							lib.Call(probe, native.Call{Args: m.args})
						}
					}
				}))
				want := float64(7 * len(m.probes) / 2)
				if len(res.Rows) != 1 || res.Rows[0].Num("count") != want || res.Rows[0].Str("language") != language ||
					res.Rows[0].Str("function") != m.function || (res.Rows[0].Num("total_ns") > 0) != (i == 1) {
					t.Errorf("%q: rows %v, want %v calls of %s", args, res.Rows, want, m.function)
				}
			}
		})
	}
}

// TestLatency nests calls, one of which is left without a return, and one that was not entered.
func TestLatency(t *testing.T) {
	const nap = 5 * time.Millisecond
	lib := languagetest.Open(t, "python", "python:function__entry", "python:function__return")
	call := func(method string, sleep time.Duration) native.Call {
		return native.Call{Args: [7]uint64{languagetest.Name("a.py"), languagetest.Name(method)}, Sleep: sleep}
	}
	begin := func(method string) { lib.Call("python:function__entry", call(method, nap)) }
	end := func(method string) { lib.Call("python:function__return", call(method, 0)) }
	res := tooltest.JSON(t, Tool, self("--latency"), on(func() {
		end("before")
		begin("outer")
		begin("outer")
		begin("left")
		end("outer")
		begin("inner")
		end("inner")
		end("outer")
	}))
	type row struct {
		count float64
		least time.Duration
	}
	// The outer call of outer takes 4 naps, the nested one 2.
	want := map[string]row{"outer": {2, 6 * nap}, "inner": {1, nap}}
	for _, r := range res.Rows {
		w := want[r.Str("method")]
		if d := time.Duration(r.Num("total_ns")); r.Num("count") != w.count || d < w.least || d > 100*w.least {
			t.Errorf("row %v, want %v calls of at least %v", r, w.count, w.least)
		}
	}
	counters := res.Summary.Object("counters")
	if len(res.Rows) != 2 || counters.Num("no_return") != 1 || counters.Num("unseen_calls") != 1 {
		t.Errorf("rows %v, counters %v, want 2 rows, 1 call left and 1 unseen", res.Rows, counters)
	}
}

// TestNames has names that are longer than the key, of which the end is shown.
func TestNames(t *testing.T) {
	long := strings.Repeat("0123456789", 40)
	for _, n := range []int{95, 96, 97, 300} {
		class := long[:n]
		want := class
		if n >= 96 {
			want = "..." + class[n-96:]
		}
		for language, args := range map[string][7]uint64{"java": {0, languagetest.Name(class), uint64(n), languagetest.Name("m"), 1}, "python": {languagetest.Name(class), languagetest.Name("m")}} {
			probe := map[string]string{"java": "hotspot:method__entry", "python": "python:function__return"}[language]
			lib := languagetest.Open(t, language, probe)
			res := tooltest.JSON(t, Tool, self("-l", language), on(func() { lib.Call(probe, native.Call{Args: args}) }))
			if len(res.Rows) != 1 || res.Rows[0].Str("class") != want {
				t.Errorf("%s: class of %d bytes: %v, want %q", language, n, res.Rows, want)
			}
		}
	}
}

// TestSyscalls counts system calls that no other code of this process makes.
func TestSyscalls(t *testing.T) {
	for _, args := range [][]string{{"-S", "-l", "none"}, {"-S", "-L", "-l", "none"}} {
		res := tooltest.JSON(t, Tool, self(args...), func() {
			for range 9 {
				unix.Getpgid(0)
			}
		})
		isOther := func(r tooltest.Row) bool { return r.Str("syscall") != "getpgid" }
		mine := slices.DeleteFunc(res.Rows, isOther)
		if len(mine) != 1 || mine[0].Num("count") != 9 || (mine[0].Num("total_ns") > 0) != (len(args) == 4) {
			t.Errorf("%q: rows %v, want 9 calls of getpgid", args, mine)
		}
	}
}

// TestAliasText checks the header of BCC.
func TestAliasText(t *testing.T) {
	lib := languagetest.Open(t, "ruby", methods()["ruby"].probes...)
	out := tooltest.Text(t, Tool, self("-L", "-l", "ruby"), on(func() {
		for _, probe := range methods()["ruby"].probes {
			lib.Call(probe, native.Call{Args: methods()["ruby"].args})
		}
	}))
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "METHOD # CALLS TIME (us)" || strings.Fields(lines[2])[0] != "Class.m" {
		t.Errorf("text is %q", out)
	}
}

// TestNoProbes traces a process that runs a language without probes.
func TestNoProbes(t *testing.T) {
	native.Open(t, languagetest.File("perl"), []string{"f"})
	tooltest.Fails(t, Tool, self(), 1, "libperl.so.5.36 has none of the probes perl:sub__entry: Perl has probes if")
}

// TestNotEnabled traces processes in which the probes do not fire.
func TestNotEnabled(t *testing.T) {
	for language, want := range map[string]string{"java": "only if it is started with -XX:+ExtendedDTraceProbes", "php": "USE_ZEND_DTRACE=1", "ruby": ""} {
		languagetest.Open(t, language, methods()[language].probes...)
		res := tooltest.JSON(t, Tool, self("-l", language), func() {})
		if has := strings.Contains(res.Stderr, "only if it is started with"); !strings.Contains(res.Stderr, want) || has != (want != "") {
			t.Errorf("%s: %s", language, res.Stderr)
		}
	}
}

// TestInterpreters compares with the calls that programs make, which they print. Methods named outer
// call those named inner.
func TestInterpreters(t *testing.T) {
	for language, tt := range map[string]struct {
		probe   string
		paths   []string
		options []string
		program string
	}{
		"python": {"python:function__return", []string{"/usr/bin/python3", "python3"}, []string{"-c"}, `
def inner(): pass
def outer(): inner(); inner()
print("ready", flush=True); input()
for i in range(50): outer()`},
		"php": {"php:function__entry", []string{"php", "php8.2", "php8.4"}, []string{"-n", "-r"}, `
function inner() {} function outer() { inner(); inner(); }
echo "ready\n"; fgets(STDIN); for ($i = 0; $i < 50; $i++) outer();`},
	} {
		t.Run(language, func(t *testing.T) {
			path := languagetest.Interpreter(t, tt.probe, tt.paths...)
			res, _ := languagetest.Run(t, Tool, nil, path, append(tt.options, tt.program)...)
			counts := map[string]float64{}
			for _, r := range res.Rows {
				counts[r.Str("method")] += r.Num("count")
			}
			if counts["outer"] != 50 || counts["inner"] != 100 {
				t.Errorf("%s: %v calls, want 50 of outer and 100 of inner", filepath.Base(path), counts)
			}
		})
	}
}
