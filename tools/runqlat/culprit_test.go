package runqlat

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/schedtest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// part is a part of the waits of a process.
type part struct {
	kind string
	pid  int // of the culprit
}

// parts returns the parts of the waits of a process. It checks that the shares add up.
func parts(t *testing.T, res *tooltest.Result, pid int) (all map[part]time.Duration, sum time.Duration) {
	t.Helper()
	all = map[part]time.Duration{}
	shares := 0.0
	for _, r := range res.Rows {
		if int(r.Num("pid")) != pid {
			continue
		}
		ns := time.Duration(r.Num("total_ns"))
		isTask := r.Str("kind") == "task" || r.Str("kind") == "thread"
		if isTask != (r.Num("culprit_pid") != 0) || isTask != (r.Str("culprit") != "") || ns == 0 || r.Num("waits") == 0 {
			t.Errorf("row %v", r)
		}
		all[part{r.Str("kind"), int(r.Num("culprit_pid"))}] += ns
		sum += ns
		shares += r.Num("share_percent")
	}
	if math.Abs(shares-100) > 1e-6 {
		t.Errorf("the shares of process %d add up to %v %%", pid, shares)
	}
	return all, sum
}

// inCgroup returns a change of a worker's command: it starts in a cgroup.
func inCgroup(dir string) func(*exec.Cmd) *exec.Cmd {
	return func(cmd *exec.Cmd) *exec.Cmd { return tooltest.InCgroup(dir, cmd.Path) }
}

// attempts calls try until it returns no differences, at most five times: an emulated machine can stall
// between readings of two clocks.
func attempts(t *testing.T, try func() []string) {
	t.Helper()
	var wrong []string
	for range 5 {
		if wrong = try(); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// TestCulprit makes a thread wait for another one in another cgroup, on one CPU. It is always runnable,
// so it waits for the other one whenever that runs, and the sum of all parts is the kernel's run_delay.
func TestCulprit(t *testing.T) {
	cpu := schedtest.CPUs(t)[0]
	hogs, victims := fmt.Sprint("culprit-hog-", os.Getpid()), fmt.Sprint("culprit-victim-", os.Getpid())
	hog := schedtest.Start(t, cpu, inCgroup(tooltest.Cgroup(t, labelled(t), hogs)))
	victim := schedtest.Start(t, cpu, inCgroup(tooltest.Cgroup(t, labelled(t), victims)))
	clean := 0 // attempts without a hidden process
	attempts(t, func() (wrong []string) {
		var hogFacts, facts schedtest.Facts
		var res *tooltest.Result
		// A wait that ends behind a hidden process is missing, so only without one the bound is sharp.
		for range 4 {
			res = tooltest.JSON(t, Tool, []string{"--by", "culprit", "-L", "--cgroups", "--tid", strconv.Itoa(victim.PID)}, func() {
				hogFacts, facts = hog.Facts(t), victim.Facts(t)
				victim.Begin(t, "spin", 300)
				hog.Begin(t, "spin", 200)
				hog.End(t)
				hogFacts = hog.Facts(t).Since(hogFacts)
				victim.End(t)
				facts = victim.Facts(t).Since(facts)
			})
			if facts.Hidden == 0 {
				clean++
				break
			}
		}
		if facts.Hidden > 0 && clean > 0 {
			return []string{fmt.Sprintf("a hidden process ran %d times", facts.Hidden)}
		}
		all, sum := parts(t, res, victim.PID)
		for _, r := range res.Rows {
			isHog := int(r.Num("culprit_pid")) == hog.PID
			if r.Str("cgroup") != "/"+victims || isHog != (r.Str("culprit_cgroup") == "/"+hogs) {
				t.Errorf("row %v", r)
			}
		}
		t.Logf("waited %v, run_delay is %v; %d runs of hidden processes; parts %v", sum, facts.Wait, facts.Hidden, all)
		schedtest.SteadyClock(t)
		if !schedtest.Near(sum, facts.Wait, time.Duration(facts.Hidden)*100*time.Millisecond) {
			wrong = append(wrong, fmt.Sprintf("waited %v, run_delay is %v", sum, facts.Wait))
		}
		if ns := all[part{kind: "throttled"}]; ns > sum/20 {
			wrong = append(wrong, fmt.Sprintf("throttled for %v", ns))
		}
		// A part is unknown if more switches than the log has entries happen in a wait, which takes many
		// other tasks.
		got, unknown, slack := all[part{"task", hog.PID}], all[part{kind: "unknown"}], max(0, facts.Wait-sum)
		if isBusy := sum-got-unknown > hogFacts.CPU; isBusy {
			slack += unknown
		} else if unknown > sum/20 {
			wrong = append(wrong, fmt.Sprintf("%v are unknown", unknown))
		}
		if got == 0 || !schedtest.Near(got, hogFacts.CPU, slack) {
			wrong = append(wrong, fmt.Sprintf("waited %v for the hog, which has used %v; %v are unknown", got, hogFacts.CPU, unknown))
		}
		return wrong
	})
}

// TestThread checks that threads of the process that waits are labelled as such.
func TestThread(t *testing.T) {
	w := schedtest.Start(t, schedtest.CPUs(t)[0], nil)
	res := tooltest.JSON(t, Tool, []string{"--by", "culprit", "--pid", strconv.Itoa(w.PID)}, func() {
		w.Begin(t, "both", 200)
		w.End(t)
	})
	all, _ := parts(t, res, w.PID)
	if all[part{"thread", w.PID}] < 20*time.Millisecond || all[part{"task", w.PID}] != 0 {
		t.Errorf("two threads that use 200 ms each on one CPU: parts %v", all)
	}
}

// prefer makes all threads of a process, and those that they create, run before normal ones.
func prefer(t *testing.T, pid int) {
	t.Helper()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
			t.Fatalf("set the policy of thread %d to SCHED_FIFO: %v", tid, err)
		}
	}
}

// TestManyCulprits makes a thread wait for 150 threads at once: each is a row, and the kernel adds all of
// them when the wait ends.
func TestManyCulprits(t *testing.T) {
	const n = 150
	cpu := schedtest.CPUs(t)[0]
	victim, many := schedtest.Start(t, cpu, nil), schedtest.Start(t, cpu, nil)
	pinAll(t, many.PID, cpu)
	prefer(t, many.PID)
	attempts(t, func() []string {
		res := tooltest.JSON(t, Tool, []string{"--by", "culprit", "-L", "--tid", strconv.Itoa(victim.PID)}, func() {
			victim.Begin(t, "spin", 300)
			many.Begin(t, "threads", n)
			many.End(t)
			victim.End(t)
		})
		culprits := map[float64]bool{}
		for _, r := range res.Rows {
			if int(r.Num("culprit_pid")) == many.PID {
				culprits[r.Num("culprit_tid")] = true
			}
		}
		if full := res.Summary.Object("reasons").Num("map_full"); full != 0 {
			t.Fatalf("%v parts lost as map_full, %d culprits", full, len(culprits))
		}
		if len(culprits) < n {
			return []string{fmt.Sprintf("%d culprits, want at least %d", len(culprits), n)}
		}
		return nil
	})
}

// TestLongWait makes a thread wait while two others take turns more often than the log of the CPU has
// entries: the last turns belong to these two, what was before is unknown, and a message says so.
func TestLongWait(t *testing.T) {
	const turns, logged = 6000, 1024
	cpu := schedtest.CPUs(t)[0]
	victim := schedtest.Start(t, cpu, nil)
	ping, pong := schedtest.Pair(t, cpu, cpu, nil)
	prefer(t, ping.PID)
	prefer(t, pong.PID)
	var took time.Duration
	attempts(t, func() []string {
		res := tooltest.JSON(t, Tool, []string{"--by", "culprit", "--pid", strconv.Itoa(victim.PID)}, func() {
			victim.Begin(t, "spin", 300)
			begin := time.Now()
			pong.Begin(t, "pong", turns/2)
			ping.Begin(t, "ping", turns/2)
			ping.End(t)
			pong.End(t)
			took = time.Since(begin)
			victim.End(t)
		})
		all, sum := parts(t, res, victim.PID)
		overwritten, told := res.Summary.Object("counters").Num("overwritten"), strings.Contains(res.Stderr, "the CPU switched more than 1000 times")
		if told != (overwritten > 0) {
			t.Errorf("overwritten %v: messages %q", overwritten, res.Stderr)
		}
		known, unknown := all[part{"task", ping.PID}]+all[part{"task", pong.PID}], all[part{kind: "unknown"}]
		// The log has a sixth of the turns.
		if overwritten == 0 || unknown == 0 || known < unknown/10 {
			// The kernel lets real-time tasks run for 0.95 s at most before others run.
			if each := took / turns; each > 400*time.Millisecond/logged {
				t.Skipf("a turn takes %v: the thread runs before there are %d", each, logged)
			}
			return []string{fmt.Sprintf("overwritten %v, waited %v: parts %v", overwritten, sum, all)}
		}
		return nil
	})
}

// throttlingIsCounted reports whether the kernel counts throttled time per run queue in a way that
// programs can use: not in 5.19 to 6.5.
func throttlingIsCounted(t *testing.T) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var queue *btf.Struct
	if err := types.TypeByName("cfs_rq", &queue); err != nil {
		t.Fatal(err)
	}
	for _, m := range queue.Members {
		if m.Name == "throttled_clock_self_time" || m.Name == "throttled_clock_task_time" {
			return true
		}
	}
	return false
}

// throttled returns the throttled time of a cgroup in cpu.stat.
func throttled(t *testing.T, dir string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch name {
		case "throttled_time":
			return time.Duration(n)
		case "throttled_usec":
			return time.Duration(n) * time.Microsecond
		}
	}
	t.Fatalf("cpu.stat of %s has no throttled time", dir)
	return 0
}

// pinAll limits all threads of a process, and those that they create, to a CPU: cpu.stat contains the time
// for which a cgroup was stopped on each CPU.
func pinAll(t *testing.T, pid, cpu int) {
	t.Helper()
	var one unix.CPUSet
	one.Set(cpu)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if err := unix.SchedSetaffinity(tid, &one); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThrottled compares with cpu.stat of a cgroup that can use a fifth of a CPU. When its thread has used
// the time, it has been stopped several times, and continued each time.
func TestThrottled(t *testing.T) {
	dir, _ := tooltest.CPUCgroup(t, "culprit-throttled", 20*time.Millisecond, 100*time.Millisecond)
	cpu := schedtest.CPUs(t)[0]
	w := schedtest.Start(t, cpu, inCgroup(dir))
	pinAll(t, w.PID, cpu)
	attempts(t, func() (wrong []string) {
		var want time.Duration
		res := tooltest.JSON(t, Tool, []string{"--by", "culprit", "--tid", strconv.Itoa(w.PID)}, func() {
			begin := throttled(t, dir)
			w.Begin(t, "spin", 150)
			w.End(t)
			want = throttled(t, dir) - begin
		})
		all, _ := parts(t, res, w.PID)
		got, unknown := all[part{kind: "throttled"}], all[part{kind: "unknown"}]
		t.Logf("throttled %v, cpu.stat has %v; parts %v", got, want, all)
		if want == 0 {
			t.Fatal("the kernel has not stopped the cgroup")
		}
		if !throttlingIsCounted(t) {
			if got != 0 || unknown < want-want/20 {
				wrong = append(wrong, fmt.Sprintf("%v throttled and %v unknown, want 0 and %v", got, unknown, want))
			}
			return wrong
		}
		schedtest.SteadyClock(t)
		if off := got - want; off > want/20 || off < -want/20 {
			wrong = append(wrong, fmt.Sprintf("throttled %v, cpu.stat has %v", got, want))
		}
		return wrong
	})
}

// TestCulpritUsage checks combinations that are refused.
func TestCulpritUsage(t *testing.T) {
	for want, all := range map[string][]string{
		"--by culprit cannot be combined with": {"--by culprit --reasons", "--by culprit --containers", "--by culprit --pidnss", "--by culprit -T"},
		"need --by culprit":                    {"--sort total_ns", "--rows 3"},
		"--by":                                 {"--by cpu"},
	} {
		for _, args := range all {
			tooltest.Fails(t, Tool, strings.Fields(args), tool.ExitUsage, want)
		}
	}
}
