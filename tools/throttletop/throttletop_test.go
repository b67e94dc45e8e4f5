package throttletop

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

const quota, period = 20 * time.Millisecond, 100 * time.Millisecond

// spin uses CPU time in a cgroup until its limit has stopped it n times.
func spin(t *testing.T, dir, limited string, n uint64) {
	t.Helper()
	cmd := tooltest.InCgroup(dir, "/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for reading(t, limited)["nr_throttled"] < n && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func reading(t *testing.T, dir string) stat {
	t.Helper()
	s, err := readStat(dir, "cpu.stat")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// throttledNs returns the throttled time in either version of cpu.stat.
func throttledNs(s stat) uint64 { return s["throttled_time"] + s["throttled_usec"]*microsecond }

// TestSpinner compares the sum of all intervals with cpu.stat of a cgroup that can use a fifth of a
// CPU. The kernel also counts a period or two after the limit is set, and one that is in progress when
// the process ends.
func TestSpinner(t *testing.T) {
	dir, path := tooltest.CPUCgroup(t, "throttled-spinner", quota, period)
	created := reading(t, dir)
	var began, ended stat
	res := tooltest.JSON(t, Tool, []string{"0.3", "--cgroup", dir}, func() {
		began = reading(t, dir)
		spin(t, dir, dir, began["nr_throttled"]+7)
		ended = reading(t, dir)
	})
	settled := reading(t, dir)
	if len(res.Rows) < 2 {
		t.Fatalf("%d rows", len(res.Rows))
	}
	var sum counts
	for _, r := range res.Rows {
		periods, throttled := r.Num("periods"), r.Num("throttled_periods")
		if r["cgroup"] != path || r.Num("quota_ns") != float64(quota) || r.Num("period_ns") != float64(period) || r.Num("limit_cpus") != 0.2 {
			t.Errorf("row %v: want cgroup %s with 20 ms per 100 ms", r, path)
		}
		if share, ok := r["throttled_percent"]; ok != (periods > 0) || ok && math.Abs(share.(float64)-100*throttled/periods) > 1e-9 {
			t.Errorf("row %v: share of throttled periods", r)
		}
		sum.Periods += uint64(periods)
		sum.Throttled += uint64(throttled)
		sum.ThrottledNs += uint64(r.Num("throttled_ns"))
	}
	for _, c := range []struct {
		name           string
		sum, low, high uint64
	}{
		{"periods", sum.Periods, ended["nr_periods"] - began["nr_periods"], settled["nr_periods"] - created["nr_periods"]},
		{"throttled periods", sum.Throttled, ended["nr_throttled"] - began["nr_throttled"], settled["nr_throttled"] - created["nr_throttled"]},
		{"throttled time", sum.ThrottledNs, throttledNs(ended) - throttledNs(began), throttledNs(settled) - throttledNs(created)},
	} {
		if c.sum < c.low || c.sum > c.high || c.sum == 0 {
			t.Errorf("%s: %d, cpu.stat has %d to %d", c.name, c.sum, c.low, c.high)
		}
	}
}

// TestAncestor checks a cgroup without a limit, whose parent has one.
func TestAncestor(t *testing.T) {
	parent, path := tooltest.CPUCgroup(t, "throttled-parent", quota, period)
	dir := filepath.Join(parent, "child")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	control := filepath.Join(parent, "cgroup.subtree_control")
	if _, err := os.Stat(control); err == nil {
		if err := os.WriteFile(control, []byte("+cpu"), 0); err != nil {
			t.Fatal(err)
		}
	}
	_, err := os.Stat(filepath.Join(dir, "cpu.stat.local"))
	res := tooltest.JSON(t, Tool, []string{"0.3", "--cgroup", parent}, func() { spin(t, dir, parent, 4) })
	var child, above float64
	for _, r := range res.Rows {
		switch r["cgroup"] {
		case path:
			above += r.Num("throttled_ns")
		case path + "/child":
			child += r.Num("throttled_any_ns")
			if _, limited := r["quota_ns"]; limited || r.Num("periods") != 0 {
				t.Errorf("row %v: it has no limit of its own", r)
			}
		}
	}
	if (child > 0) != (err == nil) || above == 0 {
		t.Errorf("stopped for %v ns, parent %v ns; cpu.stat.local: %v", child, above, err)
	}
}

// TestRemoved checks that a cgroup that is removed in an interval is reported as not observed.
func TestRemoved(t *testing.T) {
	dir, _ := tooltest.CPUCgroup(t, "throttled-removed", quota, period)
	res := tooltest.JSON(t, Tool, []string{"3600", "--cgroup", filepath.Dir(dir)}, func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if n := res.Summary.Num("lost"); n < 1 {
		t.Errorf("summary %v: the cgroup is not counted", res.Summary)
	}
}

func TestUsage(t *testing.T) {
	tooltest.Fails(t, Tool, []string{"--cgroup", "/no-such-cgroup"}, 2, "no such cgroup")
}
