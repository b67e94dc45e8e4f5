package argdist

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
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
		sums[fmt.Sprint(r.Str("func"), r.Object("args"))] += r.Num("count")
	}
	var out []string
	for key, n := range sums {
		out = append(out, fmt.Sprintf("%v × %s", n, strings.ReplaceAll(key, "map", "")))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

// TestCounts checks counts by argument values in both probe syntaxes, with one and several reports.
func TestCounts(t *testing.T) {
	path := (&tooltest.Native{Touches: 1000, Depth: 3}).Write(t)
	for probe, want := range map[string]string{
		path + ":touch":                                                       "1000 × touch[]",
		path + ":touch(arg1 % 4, (int)arg2)":                                  "250 × touch[(int)arg2:-100 arg1 % 4:0], 250 × touch[(int)arg2:-100 arg1 % 4:1], 250 × touch[(int)arg2:-100 arg1 % 4:2], 250 × touch[(int)arg2:-100 arg1 % 4:3]",
		path + ":touch(arg3:str) if arg1 <= 10":                               "10 × touch[arg3:known answer]",
		"p:" + path + ":touch(u64 n, int m, char *s):int,char*:m,s:n > 900#x": "100 × touch[m:-100 s:known answer]",
		"r:" + path + ":touch():u64:$retval / 500":                            "2 × touch[$retval / 500:2], 498 × touch[$retval / 500:0], 500 × touch[$retval / 500:1]",
		path + ":touch(*(u64 *)arg1, 1)":                                      "1000 × touch[1:1]",
		path + `:touch(comm) if arg3 != 0 && comm == "native"`:                "1000 × touch[comm:native]",
		path + ":re*(arg1)":                                                   "1 × recurse[arg1:1], 1 × recurse[arg1:2], 1 × recurse[arg1:3]",
	} {
		for _, every := range []string{"60", "0.05"} {
			res := tooltest.JSON(t, Tool, []string{"-i", every, "-C", probe}, func() { run(t, path) })
			if got := counted(res); got != want || res.Summary.Num("lost") != 0 {
				t.Errorf("-i %s %s: %s, want %s: %v", every, probe, got, want, res.Summary)
			}
		}
	}
}

// TestHistogram checks a histogram of known values, and the counters of values that are in none.
func TestHistogram(t *testing.T) {
	path := (&tooltest.Native{Touches: 1000}).Write(t)
	args := []string{"-i", "60", "-H", path + ":touch(arg1)", "-H", path + ":touch((int)arg2)", "-H", "r:" + path + ":touch(*(u64 *)retval)#broken",
		"-H", "p:" + path + ":touch(u64 n):u64:n:n <= 10#few"}
	res := tooltest.JSON(t, Tool, args, func() { run(t, path) })
	got := map[string]tooltest.Row{}
	for _, h := range res.Histograms {
		key := h.Object("key")
		if key.Str("func") != "touch" || h.Str("unit") != "value" {
			t.Errorf("histogram %v", h)
		}
		got[key.Str("expr")] = h
	}
	all, few := got["arg1"], got["few"]
	if len(got) != 2 || all.Num("count") != 1000 || all.Num("sum") != 500500 || all.Num("min") != 1 || all.Num("max") != 1000 {
		t.Errorf("histograms %v", got)
	}
	if few.Num("count") != 10 || few.Num("sum") != 55 || few.Num("max") != 10 {
		t.Errorf("histogram of few: %v", few)
	}
	if c := res.Summary.Object("counters"); c.Num("negative") != 1000 || c.Num("no_value") != 1000 {
		t.Errorf("counters %v", c)
	}
}

// TestTracepoint counts system calls of this thread by an argument.
func TestTracepoint(t *testing.T) {
	tooltest.SystemCallTracepoints(t)
	probe := fmt.Sprintf("t:syscalls:sys_enter_close(fd) if pid == %d && fd > 100000", os.Getpid())
	res := tooltest.JSON(t, Tool, []string{"-i", "60", "-C", probe}, func() {
		for i := range 30 {
			_ = unix.Close(200000 + i%3) // nonexistent descriptors
		}
	})
	if got, want := counted(res), "10 × syscalls/sys_enter_close[fd:200000], 10 × syscalls/sys_enter_close[fd:200001], 10 × syscalls/sys_enter_close[fd:200002]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTextAndCSV(t *testing.T) {
	path := (&tooltest.Native{Touches: 12}).Write(t)
	args := []string{"-i", "60", "-T", "1", "-C", path + ":touch((arg1 > 4) + 0, arg3:str)"}
	out := tooltest.Text(t, Tool, args, func() { run(t, path) })
	if want := `8 touch (arg1 > 4) + 0=1 arg3="known answer"`; !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("text %q, want %q", out, want)
	}
	args = append(args, "--output", "csv", "--columns", "count,args")
	if out, want := tooltest.Text(t, Tool, args, func() { run(t, path) }), "count,args\n8,\"{\"\"(arg1 > 4) + 0\"\":1,\"\"arg3\"\":\"\"known answer\"\"}\"\n"; out != want {
		t.Errorf("CSV %q, want %q", out, want)
	}
	out = tooltest.Text(t, Tool, []string{"-i", "60", "-H", path + ":touch(arg1)"}, func() { run(t, path) })
	if !strings.Contains(out, "func = touch") || !strings.Contains(out, "8 -> 15") || !strings.Contains(out, "count 12") {
		t.Errorf("histogram %s", out)
	}
}

func TestRefusals(t *testing.T) {
	tooltest.Root(t)
	path := (&tooltest.Native{}).Write(t)
	for args, want := range map[string]string{
		"":                                 "missing probe",
		"-C a -H b":                        "cannot be combined",
		"-H " + path + ":touch":            "a histogram needs exactly one numeric expression",
		"-H " + path + ":touch(arg3:str)":  "a histogram needs exactly one numeric expression",
		"-H " + path + ":touch(arg1,arg2)": "a histogram needs exactly one numeric expression",
		"-C " + path + ":touch():a:b:c:d":  "want TYPES:EXPRESSIONS[:CONDITION]",
		"-C " + path + ":touch(arg1:str,arg2:str,arg3:str,1,2,3)": "more than the limit of 144",
	} {
		var out, errOut bytes.Buffer
		if code := tool.Run(t.Context(), Tool, strings.Fields(args), &out, &errOut); code != tool.ExitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, errOut.String(), want)
		}
	}
}

// TestCumulative checks that a cumulative report contains the previous ones.
func TestCumulative(t *testing.T) {
	path := (&tooltest.Native{Touches: 1000}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-c", "-i", "20ms", "-C", path + ":touch(arg1 % 2)"}, func() { run(t, path); run(t, path) })
	last := map[string]float64{}
	for _, r := range res.Rows {
		key := fmt.Sprint(r.Object("args"))
		if n := r.Num("count"); n < last[key] {
			t.Errorf("%s: %v after %v", key, n, last[key])
		}
		last[key] = r.Num("count")
	}
	if last["map[arg1 % 2:0]"] != 1000 || last["map[arg1 % 2:1]"] != 1000 {
		t.Errorf("at the end %v, want 1000 each", last)
	}
	res = tooltest.JSON(t, Tool, []string{"-c", "-i", "20ms", "-H", path + ":touch(arg1)"}, func() { run(t, path); run(t, path) })
	if n := res.Histograms[len(res.Histograms)-1].Num("count"); n != 2000 || res.Summary.Num("events") != 2000 {
		t.Errorf("%v values at the end, want 2000: %v", n, res.Summary)
	}
}
