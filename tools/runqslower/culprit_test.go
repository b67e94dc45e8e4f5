package runqslower

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestCulprit makes three threads compete for one CPU. In a wait of one of them the two others run, and
// the timer's softirqs. The culprit has the largest part: in most waits that cannot be a tenth, which
// would be more than ten parts; that of softirqs is much less.
func TestCulprit(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	var all []*schedtest.Worker
	for range 3 {
		all = append(all, schedtest.Start(t, cpu, nil))
	}
	victim, others := all[0], []int{all[1].PID, all[2].PID}
	args := []string{"1ms", "--tid", strconv.Itoa(victim.PID), "--columns", "+culprit,+culprit_kind,+culprit_pid,+culprit_tid,+culprit_ns,+culprit_percent,+culprit_cgroup"}
	res := tooltest.JSON(t, Tool, args, func() { schedtest.Spin(t, all, 300*time.Millisecond) })
	small, known := 0, 0
	for _, r := range res.Events {
		ns, percent := r.Num("culprit_ns"), r.Num("culprit_percent")
		if ns > r.Num("latency_ns") || math.Abs(percent-100*ns/r.Num("latency_ns")) > 1e-6 {
			t.Errorf("row %v", r)
		}
		if percent < 10 {
			small++
		}
		if !slices.Contains(others, int(r.Num("culprit_tid"))) {
			continue
		}
		known++
		if r.Num("culprit_pid") != r.Num("culprit_tid") || r.Str("culprit") != "runqslower.test" || r.Str("culprit_kind") != "task" || r.Str("culprit_cgroup") == "" {
			t.Errorf("row %v", r)
		}
	}
	t.Logf("%d waits, %d for one of the two others, %d of less than a tenth", len(res.Events), known, small)
	if known == 0 || small > len(res.Events)/2 {
		t.Errorf("%d waits, of which %d for one of the two other threads, and %d with a culprit of less than a tenth", len(res.Events), known, small)
	}
}
