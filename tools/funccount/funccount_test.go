package funccount

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func run(t testing.TB, path string) {
	t.Helper()
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run %s: %v: %s", path, err, out)
	}
}

// counted sums the counts of all reports.
func counted(res *tooltest.Result) string {
	sums := map[string]float64{}
	for _, r := range res.Rows {
		sums[r.Str("func")] += r.Num("count")
	}
	return fmt.Sprint(sums)
}

// attachOptions returns the options that force each attach type of user functions; with -short only
// the default.
func attachOptions() [][]string {
	return tooltest.ArgVariants([]string{"--hook", "user=uprobe", "--hook", "user_return=uprobe"})
}

// TestUserFunctions counts calls of several functions at once, in one report and in several.
func TestUserFunctions(t *testing.T) {
	path := (&tooltest.Native{Touches: 2000, Depth: 7, Naps: 3}).Write(t)
	for _, attach := range attachOptions() {
		for pattern, want := range map[string]string{
			path + ":*":                  "map[_start:2 nap:20 recurse:14 touch:4000]",
			path + ":touch":              "map[touch:4000]",
			path + ":?a*":                "map[nap:20]",
			"r:" + path + ":*e*":         "map[recurse:14]",
			"uretprobe:" + path + ":nap": "map[nap:20]",
		} {
			for _, args := range [][]string{nil, {"-i", "0.02"}} {
				res := tooltest.JSON(t, Tool, append(append(args, attach...), pattern), func() {
					run(t, path)
					run(t, path)
				})
				if got := counted(res); got != want || res.Summary.Num("lost") != 0 {
					t.Errorf("%v %v %s: %s, want %s: %v", attach, args, pattern, got, want, res.Summary)
				}
			}
		}
	}
}

// TestOddPath expects the exact path of a program whose name is not UTF-8, in every row.
func TestOddPath(t *testing.T) {
	path := (&tooltest.Native{Touches: 5}).WriteOdd(t)
	res := tooltest.JSON(t, Tool, []string{path + ":touch"}, func() { run(t, path) })
	if got := counted(res); got != "map[touch:5]" {
		t.Errorf("counts %s, want 5", got)
	}
	for _, r := range res.Rows {
		if got := r.Bytes(t, "module"); got != path {
			t.Errorf("module %q, want %q", got, path)
		}
	}
}

func TestRegexp(t *testing.T) {
	path := (&tooltest.Native{Touches: 5, Depth: 2}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-r", path + ":(touch|nap)$"}, func() { run(t, path) })
	if got, want := counted(res), "map[nap:2 touch:5]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTracepoints counts tracepoints with and without a raw tracepoint, hit by this thread.
func TestTracepoints(t *testing.T) {
	tooltest.Tracefs(t)
	path := (&tooltest.Native{}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", "native", "t:sched:sched_process_e*"}, func() {
		for range 30 {
			run(t, path)
		}
	})
	if got, want := counted(res), "map[sched/sched_process_exec:30 sched/sched_process_exit:30]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	tooltest.SystemCallTracepoints(t)
	res = tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), "t:syscalls:sys_*_getppid"}, func() {
		for range 1000 {
			unix.Getppid()
		}
	})
	if got, want := counted(res), "map[syscalls/sys_enter_getppid:1000 syscalls/sys_exit_getppid:1000]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCPU counts hits on one CPU only.
func TestCPU(t *testing.T) {
	path := (&tooltest.Native{Touches: 100}).Write(t)
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip(err)
	}
	load := func() {
		cmd := exec.Command("taskset", "1", path)
		if err := cmd.Run(); err != nil {
			t.Errorf("run on CPU 0: %v", err)
		}
	}
	res := tooltest.JSON(t, Tool, []string{"-c", "0", path + ":touch"}, load)
	if got, want := counted(res), "map[touch:100]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	res = tooltest.JSON(t, Tool, []string{"-c", "1", path + ":touch"}, load)
	if got, want := counted(res), "map[]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestText(t *testing.T) {
	path := (&tooltest.Native{Touches: 12, Depth: 3}).Write(t)
	out := tooltest.Text(t, Tool, []string{path + ":*"}, func() { run(t, path) })
	var lines []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			lines = append(lines, f[0]+" "+f[1])
		}
	}
	if got, want := strings.Join(lines, ", "), "FUNC COUNT, touch 12, nap 3, recurse 3, _start 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	csv := tooltest.Text(t, Tool, []string{"--output", "csv", "--columns", "func,module,count", path + ":touch"}, func() { run(t, path) })
	if want := "func,module,count\ntouch," + path + ",12\n"; csv != want {
		t.Errorf("CSV %q, want %q", csv, want)
	}
}

// TestUSDT counts USDT probes, one of them with a semaphore.
func TestUSDT(t *testing.T) {
	probes := []native.Probe{
		{Function: "alpha", Provider: "corescope", Name: "first", Semaphore: true},
		{Function: "beta", Provider: "corescope", Name: "second"},
	}
	lib := native.Open(t, "libprobes.so", []string{"alpha", "beta"}, probes...)
	for pattern, want := range map[string]string{
		"u:" + lib.Path + ":*":                  "map[corescope:first:20 corescope:second:10]",
		"usdt:" + lib.Path + ":corescope:first": "map[corescope:first:20]",
		"u:" + lib.Path + ":sec*":               "map[corescope:second:10]",
	} {
		var semaphore uint16
		res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), pattern}, func() {
			semaphore = lib.Semaphore(0)
			for i := range 20 {
				lib.Call("alpha", native.Call{})
				if i%2 == 0 {
					lib.Call("beta", native.Call{})
				}
			}
		})
		if got := counted(res); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
		if isWanted := strings.Contains(want, "first"); (semaphore > 0) != isWanted {
			t.Errorf("%s: the semaphore is %d", pattern, semaphore)
		}
	}
}
