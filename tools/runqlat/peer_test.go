package runqlat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares the number of waits of two processes from start to exit with runqlat of
// libbpf-tools.
func TestPeer(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	peer := tooltest.StartPeer(t, "runqlat", "-P")
	peer.Await(t, "Tracing", nil)
	var both [2]*schedtest.Worker
	var want [2]schedtest.Facts
	var lines []string
	res := tooltest.JSON(t, Tool, []string{"-P"}, func() {
		both[0], both[1] = schedtest.Pair(t, cpu, cpu, nil)
		want = schedtest.Play(t, both[0], both[1], 10000)
		for _, w := range both {
			w.Kill()
		}
		lines = peer.Stop(t)
	})
	for i, w := range both {
		theirs, ours := peerWaits(lines, w.PID), uint64(0)
		for _, h := range res.Histograms {
			if int(h.Object("key").Num("pid")) == w.PID {
				ours += uint64(h.Num("count"))
			}
		}
		t.Logf("process %d: peer has %d waits, we have %d", w.PID, theirs, ours)
		if ours < want[i].Woken+want[i].Preempted-want[i].Hidden {
			t.Errorf("process %d: %d waits, its thread-group leader alone had %d", w.PID, ours, want[i].Woken+want[i].Preempted)
		}
		if theirs == 0 || theirs > ours || ours-theirs > ours/1000 {
			t.Errorf("process %d: peer has %d waits, we have %d", w.PID, theirs, ours)
		}
	}
}

// peerWaits sums the lines below "pid = PID COMM".
func peerWaits(lines []string, pid int) uint64 {
	title := fmt.Sprintf("pid = %d ", pid)
	for i, line := range lines {
		if !strings.HasPrefix(line, title) {
			continue
		}
		end := i + 1
		for end < len(lines) && lines[end] != "" {
			end++
		}
		return bars(strings.Join(lines[i:end], "\n"))
	}
	return 0
}
