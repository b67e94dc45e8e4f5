package funccount

import (
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestKernelFunctions counts a function with a known number of calls, and a hundred functions at
// once.
func TestKernelFunctions(t *testing.T) {
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: 25, Nap: time.Millisecond}).Write(t)
	for pattern, name := range map[string]string{"hrtimer_nanosleep": "hrtimer_nanosleep", "hrtimer_nanosl*": "hrtimer_nanosleep", "r:hrtimer_nanosleep": "hrtimer_nanosleep"} {
		res := tooltest.JSON(t, Tool, []string{"--comm", "native", pattern}, func() { run(t, path) })
		if got, want := counted(res), "map["+name+":25]"; got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
	res := tooltest.JSON(t, Tool, []string{"vfs_*"}, func() { run(t, path) })
	if got := counted(res); !strings.Contains(got, "vfs_open:") || !strings.Contains(got, "vfs_read:") || res.Summary.Num("lost") != 0 {
		t.Errorf("calls %s: %v", got, res.Summary)
	}
	t.Logf("%v; %s", res.Ready, res.Stderr)
}
