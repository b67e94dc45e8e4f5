package tooltest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Spend returns a load that lasts until the main thread of a process has used the given amount of
// additional CPU time. The duration depends on the load of the machine, but the number of samples
// of the thread does not.
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
