package tooltest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Spend returns a load that lasts until the first thread of a process has had that much more
// of the CPUs. How long that takes depends on what else runs; how often it is sampled
// meanwhile does not.
func Spend(t testing.TB, pid string, cpu time.Duration) func() {
	return func() {
		for end := spent(t, pid) + cpu; !t.Failed() && spent(t, pid) < end; {
			time.Sleep(time.Millisecond)
		}
	}
}

func spent(t testing.TB, pid string) (cpu time.Duration) {
	text, err := os.ReadFile("/proc/" + pid + "/schedstat")
	if err != nil {
		t.Error(err)
	}
	fmt.Sscan(string(text), (*int64)(&cpu))
	return cpu
}
