package runqlat

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestFilters selects the waits of one of two tasks that wake each other: waker and wakee are never
// both selected.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	dir := tooltest.Cgroup(t, "cgroup2", fmt.Sprintf("corescope-runqlat-%d", os.Getpid()))
	a, b := schedtest.Pair(t, cpu, cpu, func(cmd *exec.Cmd) *exec.Cmd { return tooltest.InCgroup(dir, cmd.Args...) })
	a.Begin(t, "name", "runqlat-a")
	a.End(t)
	id := strconv.Itoa(a.PID)
	for _, filter := range [][]string{
		{"--pid", id}, {"-p", id}, {"--tid", id}, {"--comm", "runqlat-a"}, {"--cgroup", dir}, {"-c", dir},
	} {
		var want [2]schedtest.Facts
		res := tooltest.JSON(t, Tool, append(filter, "-L", "--reasons"), func() { want = schedtest.Play(t, a, b, 1000) })
		checkCounts(t, res, a, want[0])
		for _, h := range res.Histograms {
			if tid := int(h.Object("key").Num("tid")); !has(a, tid) {
				t.Errorf("%v: unexpected histogram of thread %d: %v", filter, tid, h)
			}
		}
	}
}

// has reports whether the thread belongs to the worker.
func has(w *schedtest.Worker, tid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", w.PID, tid))
	return err == nil
}

// labelled is the cgroup hierarchy that labels refer to.
func labelled(t *testing.T) string {
	t.Helper()
	cgroups, err := system.OpenCgroups("/")
	if err != nil {
		t.Skipf("cgroups are unavailable: %v", err)
	}
	if name := cgroups.Default(); name != "" {
		return name
	}
	return "cgroup2"
}

// TestKeys checks each key for a task with known values.
func TestKeys(t *testing.T) {
	tooltest.AnyAttachType(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	cpu := schedtest.CPUs(t)[len(schedtest.CPUs(t))-1]
	dir := tooltest.Cgroup(t, labelled(t), "docker/"+id)
	w := schedtest.Start(t, cpu, func(cmd *exec.Cmd) *exec.Cmd {
		cmd = tooltest.InCgroup(dir, cmd.Args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		return cmd
	})
	w.Begin(t, "name", "runqlat-w")
	w.End(t)
	var ns unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", w.PID), &ns); err != nil {
		t.Fatal(err)
	}
	pid := float64(w.PID)
	for _, test := range []struct {
		flag string
		want map[string]any
	}{
		{"--pids", map[string]any{"pid": pid, "comm": "runqlat-w"}},
		{"--tids", map[string]any{"tid": pid, "comm": "runqlat-w"}},
		{"--pidnss", map[string]any{"pidns": float64(ns.Ino)}},
		{"--cpus", map[string]any{"cpu": float64(cpu)}},
		{"--cgroups", map[string]any{"cgroup": "/docker/" + id}},
		{"--containers", map[string]any{"container": id[:12]}},
		{"--reasons", map[string]any{"reason": "wakeup"}},
	} {
		args := []string{test.flag, "--tid", strconv.Itoa(w.PID)}
		res := tooltest.JSON(t, Tool, args, func() {
			for range 10 {
				w.Begin(t, "nothing", "")
				w.End(t)
			}
		})
		found := false
		for _, h := range res.Histograms {
			found = found || fmt.Sprint(h.Object("key")) == fmt.Sprint(tooltest.Row(test.want))
		}
		if !found {
			t.Errorf("%s: no histogram has the key %v: %v", test.flag, test.want, res.Histograms)
		}
		if len(res.Histograms) > 1 && test.flag != "--reasons" {
			t.Errorf("%s: %d histograms of one thread", test.flag, len(res.Histograms))
		}
	}
}

// TestProcessName gives a process a different name from its threads: they are all in the histogram
// of the process's name.
func TestProcessName(t *testing.T) {
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	w.Begin(t, "name", "runqlat-leader")
	w.End(t)
	res := tooltest.JSON(t, Tool, []string{"-P", "--pid", strconv.Itoa(w.PID)}, func() {
		w.Begin(t, "threads", 100)
		w.End(t)
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Object("key").Str("comm") != "runqlat-leader" {
		t.Fatalf("want one histogram of the process: %v", res.Histograms)
	}
	if n := res.Histograms[0].Num("count"); n < 100 {
		t.Errorf("%v waits of 100 threads", n)
	}
}

// TestOutput compares counts in text and CSV.
func TestOutput(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := schedtest.CPUs(t)[0]
	a, b := schedtest.Pair(t, cpu, cpu, nil)
	args := []string{"-L", "--tid", strconv.Itoa(a.PID)}
	var want [2]schedtest.Facts
	check := func(format string, count uint64) {
		t.Helper()
		if n := want[0].Woken + want[0].Preempted; count > n || n-count > want[0].Hidden {
			t.Errorf("%s: %d waits, want %d", format, count, n)
		}
	}
	text := tooltest.Text(t, Tool, args, func() { want = schedtest.Play(t, a, b, 1000) })
	title := fmt.Sprintf("\n\ntid = %d runqlat.test\n     usecs               : count    distribution\n", a.PID)
	if !strings.HasPrefix(text, title) {
		t.Errorf("text begins with %q, want %q", text[:min(len(text), len(title))], title)
	}
	check("bars", bars(text))
	var count uint64
	fmt.Sscanf(text[strings.LastIndex(text, "\ncount ")+1:], "count %d,", &count)
	check("count", count)

	csv := tooltest.Text(t, Tool, append(args, "--output", "csv", "-m", "--reasons"), func() { want = schedtest.Play(t, a, b, 1000) })
	lines := strings.Split(strings.TrimSpace(csv), "\n")
	if want := "time,tid,comm,reason,unit,lo,hi,count"; lines[0] != want {
		t.Errorf("CSV begins with %q, want %q", lines[0], want)
	}
	count = 0
	for _, line := range lines[1:] {
		f := strings.Split(line, ",")
		if f[1] != strconv.Itoa(a.PID) || f[2] != "runqlat.test" || f[4] != "msecs" {
			t.Errorf("line of CSV: %q", line)
		}
		n, err := strconv.ParseUint(f[7], 10, 64)
		if err != nil {
			t.Error(err)
		}
		count += n
	}
	check("CSV", count)
}

// bars sums the lines of a histogram in text.
func bars(text string) (count uint64) {
	for line := range strings.Lines(text) {
		var lo, hi, n uint64
		if k, _ := fmt.Sscanf(line, "%d -> %d : %d", &lo, &hi, &n); k == 3 {
			count += n
		}
	}
	return count
}
