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

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestFilters selects the waits of one of two tasks that wake each other: waker and wakee are never
// both selected.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	cpu := cpus(t)[0]
	dir := tooltest.Cgroup(t, "cgroup2", fmt.Sprintf("corescope-runqlat-%d", os.Getpid()))
	a, b := pair(t, cpu, cpu, func(cmd *exec.Cmd) *exec.Cmd { return tooltest.InCgroup(dir, cmd.Args...) })
	a.begin(t, "name", "runqlat-a")
	a.end(t)
	id := strconv.Itoa(a.pid)
	for _, filter := range [][]string{
		{"--pid", id}, {"-p", id}, {"--tid", id}, {"--comm", "runqlat-a"}, {"--cgroup", dir}, {"-c", dir},
	} {
		var want [2]facts
		res := tooltest.JSON(t, Tool, append(filter, "-L", "--reasons"), func() { want = play(t, a, b, 1000) })
		checkCounts(t, res, a, want[0])
		for _, h := range res.Histograms {
			if tid := int(h.Object("key").Num("tid")); !a.has(tid) {
				t.Errorf("%v: unexpected histogram of thread %d: %v", filter, tid, h)
			}
		}
	}
}

// has reports whether the thread belongs to the worker.
func (w *worker) has(tid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", w.pid, tid))
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
	cpu := cpus(t)[len(cpus(t))-1]
	dir := tooltest.Cgroup(t, labelled(t), "docker/"+id)
	w := start(t, cpu, func(cmd *exec.Cmd) *exec.Cmd {
		cmd = tooltest.InCgroup(dir, cmd.Args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		return cmd
	})
	w.begin(t, "name", "runqlat-w")
	w.end(t)
	var ns unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", w.pid), &ns); err != nil {
		t.Fatal(err)
	}
	pid := float64(w.pid)
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
		args := []string{test.flag, "--tid", strconv.Itoa(w.pid)}
		res := tooltest.JSON(t, Tool, args, func() {
			for range 10 {
				w.begin(t, "nothing", "")
				w.end(t)
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
	w := start(t, cpus(t)[0], nil)
	w.begin(t, "name", "runqlat-leader")
	w.end(t)
	res := tooltest.JSON(t, Tool, []string{"-P", "--pid", strconv.Itoa(w.pid)}, func() {
		w.begin(t, "threads", 100)
		w.end(t)
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
	cpu := cpus(t)[0]
	a, b := pair(t, cpu, cpu, nil)
	args := []string{"-L", "--tid", strconv.Itoa(a.pid)}
	var want [2]facts
	check := func(format string, count uint64) {
		t.Helper()
		if n := want[0].wakeup + want[0].preempted; count > n || n-count > want[0].hidden {
			t.Errorf("%s: %d waits, want %d", format, count, n)
		}
	}
	text := tooltest.Text(t, Tool, args, func() { want = play(t, a, b, 1000) })
	title := fmt.Sprintf("\n\ntid = %d runqlat.test\n     usecs               : count    distribution\n", a.pid)
	if !strings.HasPrefix(text, title) {
		t.Errorf("text begins with %q, want %q", text[:min(len(text), len(title))], title)
	}
	check("bars", bars(text))
	var count uint64
	fmt.Sscanf(text[strings.LastIndex(text, "\ncount ")+1:], "count %d,", &count)
	check("count", count)

	csv := tooltest.Text(t, Tool, append(args, "--output", "csv", "-m", "--reasons"), func() { want = play(t, a, b, 1000) })
	lines := strings.Split(strings.TrimSpace(csv), "\n")
	if want := "time,tid,comm,reason,unit,lo,hi,count"; lines[0] != want {
		t.Errorf("CSV begins with %q, want %q", lines[0], want)
	}
	count = 0
	for _, line := range lines[1:] {
		f := strings.Split(line, ",")
		if f[1] != strconv.Itoa(a.pid) || f[2] != "runqlat.test" || f[4] != "msecs" {
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
