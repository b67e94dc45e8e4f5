package runqlat

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestSampled counts one of 8 waits of two threads that wake each other on one CPU, and then all of them.
// The estimate of the former, and the exact number of the latter, are those of the kernel.
func TestSampled(t *testing.T) {
	const trips, each = 10000, 8
	cpu := schedtest.CPUs(t)[0]
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "queue=raw"}) {
		t.Run(fmt.Sprint(attach), func(t *testing.T) {
			a, b := schedtest.Pair(t, cpu, cpu, nil)
			args := append(attach, "-L", "--tid", strconv.Itoa(a.PID), "--tid", strconv.Itoa(b.PID))
			var want [2]schedtest.Facts
			load := func(func(uint32)) { want = schedtest.Play(t, a, b, trips) }
			got, _ := sampledWaits(tooltest.ExportSampled(t, Tool, args, each, load))
			all, hidden := sum(want)
			tooltest.CheckSampled(t, "waits", got, all, hidden, each)

			got, lost := sampledWaits(tooltest.ExportSampled(t, Tool, args, each, func(sample func(uint32)) {
				sample(1)
				load(nil)
			}))
			all, hidden = sum(want)
			if got > all || all-got > hidden || got+lost < all {
				t.Errorf("%d waits and %d unobserved, want %d, of which %d may be hidden", got, lost, all, hidden)
			}
		})
	}
}

// sampledWaits returns the number of waits, and of those that are reported as unobserved.
func sampledWaits(run *tooltest.ExportedRun) (n, unobserved uint64) {
	for _, h := range run.Histograms {
		n += h.Exponential.Count
	}
	return n, run.Summary.Reasons["unobserved"]
}

// sum returns the number of waits of two threads, and of those that may be hidden.
func sum(f [2]schedtest.Facts) (all, hidden uint64) {
	return f[0].Woken + f[0].Preempted + f[1].Woken + f[1].Preempted, f[0].Hidden + f[1].Hidden
}
