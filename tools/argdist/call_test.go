package argdist

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestEntryAndLatency checks arguments at the entry of calls, also of nested ones, and the duration
// of calls that sleep for a known time.
func TestEntryAndLatency(t *testing.T) {
	const nap = 30 * time.Millisecond
	path := (&tooltest.Native{Touches: 5, Depth: 3, Naps: 2, Nap: nap}).Write(t)
	for _, c := range []struct{ probe, want string }{
		{"r:" + path + ":recurse(long n):long:$entry(n)", "1 × recurse[$entry(n):1], 1 × recurse[$entry(n):2], 1 × recurse[$entry(n):3]"},
		{"r:" + path + ":recurse(long n):long:$entry(n):$latency >= $entry(n) * " + fmt.Sprint(nap.Nanoseconds()),
			"1 × recurse[$entry(n):1], 1 × recurse[$entry(n):2], 1 × recurse[$entry(n):3]"},
		{"r:" + path + `:touch(long n, int m, char *s):long,int,char*:$retval - $entry(n),$entry(m),$entry(s):STRCMP("known answer", $entry(s)) && $entry(n) > 2;label`,
			"3 × touch[$entry(m):-100 $entry(s):known answer $retval - $entry(n):1]"},
		{"r:" + path + ":nap():u64:$latency / 10000000 >= 3#slow", "5 × nap[$latency / 10000000 >= 3:1]"},
		{"r:" + path + ":nap():u32:$PID > 0:$latency < " + fmt.Sprint(nap.Nanoseconds()), ""},
	} {
		for _, attach := range [][]string{nil, {"--hook", "user_call=uprobe"}} {
			res := tooltest.JSON(t, Tool, append(attach, "-i", "60", "-C", c.probe), func() { run(t, path) })
			if got := counted(res); got != c.want || res.Summary.Num("lost") != 0 {
				t.Errorf("%v %s: %s, want %s: %v", attach, c.probe, got, c.want, res.Summary)
			}
		}
	}
	res := tooltest.JSON(t, Tool, []string{"-i", "60", "-H", "r:" + path + ":nap(void *x):u64:$latency/1000;us"}, func() { run(t, path) })
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 5 || res.Histograms[0].Num("min") < 0 {
		t.Errorf("histograms %v, want one of five calls", res.Histograms)
	}
}

// TestDefaultValue checks that the value of a return is the return value, as an int in user functions.
func TestDefaultValue(t *testing.T) {
	path := (&tooltest.Native{Touches: 3}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-i", "60", "-C", "r:" + path + ":touch()"}, func() { run(t, path) })
	if got, want := counted(res), "1 × touch[$retval:2], 1 × touch[$retval:3], 1 × touch[$retval:4]"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}
	res = tooltest.JSON(t, Tool, []string{"-i", "60", "-I", "linux/fs.h", "-H", "r:" + path + ":touch"}, func() { run(t, path) })
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 3 {
		t.Errorf("histograms %v, want one of three values", res.Histograms)
	}
}

// TestLongString checks a string of more than 80 bytes.
func TestLongString(t *testing.T) {
	text := "/bin/true"
	for len(text) < 112 {
		text = "/." + text
	}
	res := tooltest.JSON(t, Tool, []string{"-i", "60", "-z", "120", "-C", "t:syscalls:sys_enter_execve():char*:filename"}, func() {
		if err := exec.Command(text).Run(); err != nil {
			t.Error(err)
		}
	})
	n := 0
	for _, r := range res.Rows {
		if r.Object("args").Str("filename") == text {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d rows with the path of %d bytes, want 1: %v", n, len(text), res.Rows)
	}
}
