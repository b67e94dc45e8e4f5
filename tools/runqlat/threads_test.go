package runqlat

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestThreads creates 5,000 threads that exit immediately: each has waited at least once, and its
// time stamp is removed.
func TestThreads(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 1000
	}
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	var left []uint32
	var hidden uint64
	res := tooltest.JSON(t, Tool, []string{"--reasons", "--pid", strconv.Itoa(w.PID)}, func() {
		begin := w.Facts(t)
		w.Begin(t, "threads", n)
		w.End(t)
		hidden = w.Facts(t).Since(begin).Hidden
		left = leftBehind(t)
	})
	for _, tid := range left {
		t.Errorf("thread %d has exited, but its time stamp remains", tid)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%v lost: %v", lost, res.Summary)
	}
	for _, h := range res.Histograms {
		if h.Object("key").Str("reason") == "wakeup" && h.Num("count") >= float64(n)-float64(hidden) {
			return
		}
	}
	t.Errorf("no histogram counts %d waits after wake-ups: %v", n, res.Histograms)
}

// notTimes is the greatest value of enum sched_stamp.
const notTimes = 3

// leftBehind lists the time stamps of threads that have exited.
func leftBehind(t *testing.T) (left []uint32) {
	t.Helper()
	m := tooltest.OwnMap(t, "sched_waits")
	defer m.Close()
	for _, tid := range stamped(t, m) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", tid)); err == nil {
			continue
		}
		// If it exited after it was listed, its time stamp disappears.
		var since uint64
		if err := m.Lookup(tid, &since); err != nil {
			t.Fatal(err)
		}
		if since > notTimes {
			left = append(left, tid)
		}
	}
	return left
}

func stamped(t *testing.T, m *ebpf.Map) (tids []uint32) {
	t.Helper()
	keys, values := make([]uint32, 4096), make([]uint64, 4096)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if values[i] > notTimes {
				tids = append(tids, keys[i])
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return tids
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
