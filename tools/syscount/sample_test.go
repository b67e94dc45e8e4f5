package syscount

import (
	"fmt"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestSampled counts one of 8 system calls, and then all.
func TestSampled(t *testing.T) {
	const threads, n, each = 4, 5000, 8
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "exit=raw"}, []string{"--latency"}) {
		t.Run(fmt.Sprint(attach), func(t *testing.T) {
			args := append(attach, "--pid", self(), "--syscall", "getppid")
			load := func(func(uint32)) { call(threads, n) }
			run := tooltest.ExportSampled(t, Tool, args, each, load)
			tooltest.CheckSampled(t, "calls", run.Sum("count"), threads*n, run.Summary.Reasons["unobserved"], each)
			run = tooltest.ExportSampled(t, Tool, args, each, func(sample func(uint32)) {
				sample(1)
				load(nil)
			})
			if got, lost := run.Sum("count"), run.Summary.Reasons["unobserved"]; got+lost != threads*n {
				t.Errorf("%d calls and %d unobserved, want %d", got, lost, threads*n)
			}
		})
	}
}
