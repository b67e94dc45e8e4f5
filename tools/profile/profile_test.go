package profile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// workerEnv makes the test binary spin for this number of milliseconds of CPU time, twice: when
// standard input requests it, and then exit.
const workerEnv = "CORESCOPE_SPIN_MS"

func TestMain(m *testing.M) {
	if program := os.Getenv(shortEnv); program != "" {
		runShort(program)
	}
	if os.Getenv(jitEnv) != "" {
		runJIT()
	}
	if ms, err := strconv.Atoi(os.Getenv(clockEnv)); err == nil {
		fmt.Println(clockOuter(time.Duration(ms) * time.Millisecond))
		return
	}
	if ms, err := strconv.Atoi(os.Getenv(leafEnv)); err == nil {
		fmt.Println(bareOuter(time.Duration(ms) * time.Millisecond))
		return
	}
	if ms, err := strconv.Atoi(os.Getenv(workerEnv)); err == nil {
		runtime.LockOSThread()
		name, _ := unix.BytePtrFromString("cs-spin")
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
		fmt.Println(unix.Gettid())
		os.Stdin.Read(make([]byte, 1))
		fmt.Println(int64(spinOuter(time.Duration(ms) * time.Millisecond)))
		return
	}
	os.Exit(m.Run())
}

//go:noinline
func spinOuter(d time.Duration) time.Duration { return spinMiddle(d) + 1 }

//go:noinline
func spinMiddle(d time.Duration) time.Duration {
	begin := cpuTime()
	for n := byte(0); cpuTime() < begin+d; n++ {
		spinLeaf(n)
	}
	return cpuTime() - begin
}

// spinLeaf has an array, and therefore a stack frame.
//
//go:noinline
func spinLeaf(n byte) (sum byte) {
	var a [256]byte
	for i := range 200_000 {
		a[byte(i)*n] += byte(i)
	}
	return a[n]
}

func cpuTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// spinner is a process that spins on request.
type spinner struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
	tid int // of the thread that spins
}

func newSpinner(t *testing.T, d time.Duration) *spinner {
	t.Helper()
	tooltest.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+strconv.FormatInt(d.Milliseconds(), 10))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &spinner{cmd, in, bufio.NewReader(out), 0}
	if _, err := fmt.Fscanln(s.out, &s.tid); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *spinner) pid() string { return strconv.Itoa(s.cmd.Process.Pid) }

// usage is the CPU time of a thread, and the elapsed time. The CPU clock that triggers samples also
// runs while the hypervisor runs other guests (steal time), which CPU time does not include.
type usage struct {
	cpu, wall time.Duration
	samples   int // by other timers of the same rate, if they were started
}

// spin makes the process spin and exit, and returns its usage.
func (s *spinner) spin(t *testing.T) usage {
	t.Helper()
	begin := time.Now()
	s.in.Close()
	b, _ := io.ReadAll(s.out)
	ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return usage{cpu: time.Duration(ns), wall: time.Since(begin)}
}

// spinSampled is spin with timers that expire hz times per second. They expire as seldom as those of
// the tool if the hypervisor does not run this machine all the time.
func (s *spinner) spinSampled(t *testing.T, hz int) usage {
	t.Helper()
	stop := tooltest.Samples(t, s.tid, hz)
	used := s.spin(t)
	used.samples = stop()
	return used
}

// names returns the functions of a stack, innermost first.
func names(r tooltest.Row, key string) (all []string) {
	frames, _ := r[key].([]any)
	for _, f := range frames {
		frame, _ := f.(map[string]any)
		symbol, _ := frame["symbol"].(string)
		all = append(all, symbol)
	}
	return all
}

// spun returns the rows of the spinning thread, not those of the runtime.
func spun(res *tooltest.Result) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool { return r.Str("comm") == "cs-spin" })
}

// isNear reports whether the number of samples at a rate in Hz corresponds to the usage: at least to the
// CPU time or to the samples of the other timers, and at most to the elapsed time. In short runs in a nested virtual
// machine, the clock of a CPU stops while the hypervisor does not run it.
func isNear(samples, rate float64, u usage) bool {
	const slack = 5 // samples
	least := 0.85
	if testing.Short() {
		least = 0.2
	}
	due := min(rate*u.cpu.Seconds(), float64(u.samples))
	return samples > 0 && samples > least*due-slack && samples < 1.15*rate*max(u.cpu, u.wall).Seconds()+slack
}

// share is the minimum share of samples with the expected stack; the rest is the Go runtime and
// page faults, which take more time on a slow machine.
func share() float64 {
	if testing.Short() {
		return 0.6
	}
	return 0.9
}

// isPreemption reports whether the stack has functions with which the Go runtime preempts
// long-running goroutines, by a signal. On an emulated machine they can take long.
func isPreemption(function string) bool {
	return strings.HasPrefix(function, "runtime.asyncPreempt") || strings.HasPrefix(function, "runtime.sig")
}

// TestSpinner checks that the number of samples corresponds to the CPU time, and each function of
// the stack. The process has exited when they are shown.
func TestSpinner(t *testing.T) {
	s := newSpinner(t, 1500*time.Millisecond)
	var used usage
	res := tooltest.JSON(t, Tool, []string{"-F", "199", "--pid", s.pid()}, func() { used = s.spinSampled(t, 199) })
	const path = "github.com/corescope/corescope/tools/profile."
	chain := []string{path + "spinLeaf", path + "spinMiddle", path + "spinOuter", path + "TestMain", "main.main", "runtime.main"}
	var all, right, preempted float64
	for _, r := range spun(res) {
		all += r.Num("count")
		got := names(r, "user_stack")
		switch {
		case len(got) >= len(chain) && slices.Equal(got[:len(chain)], chain):
			right += r.Num("count")
		case slices.ContainsFunc(got, isPreemption):
			preempted += r.Num("count")
		}
	}
	if !isNear(all, 199, used) {
		t.Errorf("%.0f samples at 199 Hz, usage is %v", all, used)
	}
	if right < (all-preempted)*share() || preempted > all/2 {
		t.Errorf("%.0f of %.0f samples have the stack %v, %.0f more are in preemption: %v", right, all, chain, preempted, spun(res))
	}
	// Samples that the kernel did not take, as on a busy virtual machine, are no losses of the tool.
	if lost := res.Summary.Num("lost") - res.Summary.Object("reasons").Num("unobserved"); lost != 0 {
		t.Errorf("lost %v: %v", lost, res.Summary)
	}
}

// TestMissing checks at a high frequency that each sample that was due while the process ran is counted
// or lost, also if the kernel did not take it.
func TestMissing(t *testing.T) {
	tooltest.AnyAttachType(t)
	const hz = 100_000
	if limit := system.MaxSampleRate("/"); limit < hz {
		t.Skipf("kernel.perf_event_max_sample_rate is %d", limit)
	}
	s := newSpinner(t, 500*time.Millisecond)
	var used usage
	res := tooltest.JSON(t, Tool, []string{"-F", strconv.Itoa(hz), "-K", "--pid", s.pid()}, func() { used = s.spin(t) })
	var all float64
	for _, r := range res.Where(func(tooltest.Row) bool { return true }) {
		all += r.Num("count")
	}
	lost := res.Summary.Num("lost")
	if least := hz*used.cpu.Seconds() - float64(runtime.NumCPU()); all+lost < least {
		t.Errorf("%v samples and %v lost, want a sum of at least %v: %v", all, lost, least, res.Summary)
	}
}

// TestShortLived checks that processes that exit immediately are symbolized, also several at once.
func TestShortLived(t *testing.T) {
	const processes, atOnce = 10, 8
	isSampled := func(rows []tooltest.Row) bool {
		pids := map[float64]bool{}
		for _, r := range rows {
			pids[r.Num("pid")] = true
		}
		return len(pids) >= processes
	}
	args := []string{"-F", "1999", "-U", "--comm", "cs-spin", "--interval", "500ms"}
	res := tooltest.JSONUntil(t, Tool, args, isSampled, func(more func() bool) {
		for more() {
			var all []*spinner
			for range atOnce {
				all = append(all, newSpinner(t, time.Millisecond))
			}
			for _, s := range all {
				s.in.Close()
			}
			for _, s := range all {
				s.spin(t)
			}
		}
	})
	for _, r := range spun(res) {
		frames, _ := r["user_stack"].([]any)
		callee := ""
		for i, f := range frames {
			frame, _ := f.(map[string]any)
			// The innermost frame can be in the vDSO, whose address no event contains. On arm64
			// signal handlers also return to it.
			isInVDSO := i == 0 || strings.HasPrefix(callee, "runtime.sigtramp")
			callee, _ = frame["symbol"].(string)
			if frame["reason"] == "exited" && !isInVDSO {
				t.Errorf("process %.0f is not symbolized: %v", r.Num("pid"), frames)
				break
			}
		}
	}
	if !isSampled(spun(res)) {
		t.Errorf("fewer than %d processes were sampled: %v", processes, res.Rows)
	}
}

// TestPeriod sets the sample period in ns of CPU clock.
func TestPeriod(t *testing.T) {
	s := newSpinner(t, time.Second)
	var used usage
	res := tooltest.JSON(t, Tool, []string{"-c", "5000000", "-U", "--pid", s.pid()}, func() { used = s.spinSampled(t, 200) })
	var all float64
	for _, r := range spun(res) {
		all += r.Num("count")
		if r.Has("kernel_stack") {
			t.Errorf("kernel stack with -U: %v", r)
		}
	}
	if !isNear(all, 200, used) {
		t.Errorf("%.0f samples at 200 Hz, usage is %v", all, used)
	}
}

// TestIdle checks that idle CPUs are shown only on request, as process 0.
func TestIdle(t *testing.T) {
	idle := func(args ...string) []tooltest.Row {
		res := tooltest.JSON(t, Tool, append([]string{"-F", "99", "-C", "0", "--duration", "500ms"}, args...), nil)
		return res.Where(func(r tooltest.Row) bool { return r.Num("pid") == 0 })
	}
	if rows := idle(); len(rows) != 0 {
		t.Errorf("idle CPUs are shown: %v", rows)
	}
	if rows := idle("-I", "-K"); len(rows) == 0 {
		t.Log("no CPU was idle")
	} else if got := names(rows[0], "kernel_stack"); !slices.Contains(got, "cpu_startup_entry") { // do_idle is not in each of them
		t.Errorf("idle stack is %v", got)
	}
}

// TestInterval checks that each interval has its own samples.
func TestInterval(t *testing.T) {
	tooltest.AnyAttachType(t)
	s := newSpinner(t, 2*time.Second)
	res := tooltest.JSON(t, Tool, []string{"-F", "99", "--interval", "500ms", "--pid", s.pid()}, func() { s.spin(t) })
	intervals := map[string]float64{}
	for _, r := range spun(res) {
		intervals[r.Str("time")] += r.Num("count")
	}
	if len(intervals) < 3 {
		t.Errorf("%d intervals in 2 s of CPU time: %v", len(intervals), intervals)
	}
	for at, n := range intervals {
		if n > 1.2*99 {
			t.Errorf("%.0f samples until %s, more than possible in a second", n, at)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	s := newSpinner(t, 500*time.Millisecond)
	out := tooltest.Text(t, Tool, []string{"-F", "99", "-d", "--pid", s.pid()}, func() { s.spin(t) })
	block := regexp.MustCompile(`(?m)^    \S*profile\.spinLeaf\n    \S*profile\.spinMiddle\n    \S*profile\.spinOuter\n(    .*\n)*    -                cs-spin \(\d+\)\n        \d+\n\n`)
	if !block.MatchString(out) {
		t.Errorf("no block of the spinner: %s", out)
	}
}

func TestFolded(t *testing.T) {
	tooltest.AnyAttachType(t)
	s := newSpinner(t, 500*time.Millisecond)
	out := tooltest.Text(t, Tool, []string{"-F", "99", "-f", "-a", "--pid", s.pid()}, func() { s.spin(t) })
	line := regexp.MustCompile(`(?m)^cs-spin;(\S+;)?runtime\.main;main\.main;\S*profile\.TestMain;\S*profile\.spinOuter;\S*profile\.spinMiddle;\S*profile\.spinLeaf \d+$`)
	if !line.MatchString(out) {
		t.Errorf("no line of the spinner: %s", out)
	}
}

// TestCSV checks that a CSV row has the stack in one cell, outermost function first.
func TestCSV(t *testing.T) {
	tooltest.AnyAttachType(t)
	s := newSpinner(t, 500*time.Millisecond)
	out := tooltest.Text(t, Tool, []string{"--output", "csv", "-F", "99", "--pid", s.pid()}, func() { s.spin(t) })
	if !strings.HasPrefix(out, "time,interval_ns,pid,comm,count,kernel_stack,user_stack\n") || !strings.Contains(out, "spinMiddle;github.com") {
		t.Errorf("CSV is %s", out)
	}
}
