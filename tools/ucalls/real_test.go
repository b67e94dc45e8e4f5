package ucalls

import (
	"fmt"
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/languagetest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// real returns programs of real runtimes in which 50 calls of outer each call inner twice.
func real(t *testing.T, language string) []string {
	t.Helper()
	const python = "def inner(): pass\ndef outer(): inner(); inner()\nprint('ready', flush=True); input()\nfor i in range(50): outer()"
	switch language {
	case "java":
		return languagetest.Java(t, "Calls", `class Calls {
			static void inner() {}
			static void outer() { inner(); inner(); }
			public static void main(String[] a) throws Exception {
				System.out.println("ready"); System.in.read();
				for (int i = 0; i < 50; i++) outer();
			}
		}`, "-XX:+ExtendedDTraceProbes")
	case "php":
		return languagetest.Real(t, "php", "-n", "-r", `function inner() {} function outer() { inner(); inner(); }
			echo "ready\n"; fgets(STDIN); for ($i = 0; $i < 50; $i++) outer();`)
	case "ruby":
		return languagetest.Real(t, "ruby", "-e", `$stdout.sync = true
			def inner; end
			def outer; inner; inner; end
			TracePoint.new(:call, :return) {}.enable
			puts "ready"; gets; 50.times { outer }`)
	case "python3.9":
		return languagetest.Real(t, "python3.9", "-c", python)
	}
	return languagetest.Real(t, "python3", "-c", python)
}

// TestReal counts the calls of programs in real runtimes, with and without their time.
func TestReal(t *testing.T) {
	for _, language := range []string{"java", "php", "ruby", "python3.9", "python3.11"} {
		t.Run(language, func(t *testing.T) {
			for _, flags := range [][]string{nil, {"--latency"}} {
				if language == "python3.11" && flags != nil {
					continue
				}
				command := real(t, language)
				res, _ := languagetest.Run(t, Tool, flags, command[0], command[1:]...)
				for method, want := range map[string]float64{"outer": 50, "inner": 100} {
					rows := res.Where(func(r tooltest.Row) bool { return r.Str("method") == method })
					if len(rows) != 1 || rows[0].Num("count") != want || rows[0].Has("total_ns") != slices.Contains(flags, "--latency") {
						t.Errorf("%q: rows of %s: %v, want %v calls", flags, method, rows, want)
					}
				}
			}
		})
	}
}

// TestNoEntries: Python 3.11 has a probe at the entry of functions, but does not fire it.
func TestNoEntries(t *testing.T) {
	command := real(t, "python3.11")
	pid, finish := languagetest.Start(t, command[0], command[1:]...)
	tooltest.Fails(t, Tool, []string{"--latency", fmt.Sprint(pid)}, tool.ExitFailure, "python3.11 fires no probe at the entry of functions")
	finish()
}

func TestNothing(t *testing.T) {
	tooltest.Fails(t, Tool, []string{"--language", "none"}, tool.ExitUsage, "--language none without --syscalls")
}
