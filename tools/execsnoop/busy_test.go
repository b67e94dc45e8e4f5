package execsnoop

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPreempted executes programs in more threads than there are CPUs. On kernels that can preempt
// programs, some are preempted, and the kernel skips their runs for others.
func TestPreempted(t *testing.T) {
	tooltest.OnHooks(t, "exec", "fail")
	target := program(t, "true")
	const threads, execs = 12, 100
	var failed atomic.Int64
	rows, summary := tooltest.File(t, Tool, children("-x"), func() {
		var wg sync.WaitGroup
		for range threads {
			wg.Go(func() {
				for range execs {
					if _, err := syscall.ForkExec(target+"-missing", []string{"missing"}, nil); err != nil {
						failed.Add(1)
					}
					if pid, err := syscall.ForkExec(target, []string{"true"}, nil); err == nil {
						unix.Wait4(pid, nil, 0, nil)
					}
				}
			})
		}
		wg.Wait()
	})
	t.Logf("summary %v", summary)
	if rows != 2*threads*execs || failed.Load() != threads*execs {
		t.Errorf("%d rows of %d execs and %d failed ones: %v", rows, threads*execs, failed.Load(), summary)
	}
}
