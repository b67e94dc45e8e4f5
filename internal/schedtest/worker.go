// Package schedtest runs processes for live tests of the scheduler: they use CPUs and wait for them in a
// known way, and the kernel counts how often.
package schedtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// A Worker is a process whose thread-group leader executes jobs on one CPU and otherwise blocks in
// read(2). The kernel counts its voluntary context switches (to sleep) and involuntary ones;
// between two blocking reads, these are the numbers of waits after a wake-up and after a
// preemption.
type Worker struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
	PID int // also the ID of its thread-group leader
}

const workerEnv = "CORESCOPE_SCHEDTEST_WORKER"

func init() {
	if os.Getenv(workerEnv) != "" {
		// In init, to run on the thread-group leader.
		runtime.LockOSThread()
	}
}

// Main replaces m.Run in the function TestMain of a package that starts workers.
func Main(m *testing.M) {
	if cpu, err := strconv.Atoi(os.Getenv(workerEnv)); err == nil {
		pin(cpu)
		work(cpu)
		return
	}
	os.Exit(m.Run())
}

// work does the jobs on standard input on a CPU, and answers each.
func work(cpu int) {
	var answer time.Duration
	buf := make([]byte, 256)
	for {
		unix.Write(1, fmt.Appendln(nil, int64(answer)))
		n, err := unix.Read(0, buf)
		if n <= 0 || err != nil {
			return
		}
		name, arg, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
		number, _ := strconv.Atoi(arg)
		switch name {
		case "spin":
			answer = spin(time.Duration(number) * time.Millisecond)
		case "both":
			both(cpu, time.Duration(number)*time.Millisecond)
		case "ping":
			pass(number, true)
		case "pong":
			pass(number, false)
		case "threads":
			threads(number)
		case "name":
			unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&append([]byte(arg), 0)[0])), 0, 0, 0)
		}
	}
}

func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		panic(err)
	}
}

// CPUs lists the CPUs that this process may use.
func CPUs(t testing.TB) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var all []int
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}

// spin uses CPU time, and returns by how much the elapsed time exceeds it. It makes only raw system
// calls: after another call that takes long, the thread waits for the Go scheduler.
func spin(cpu time.Duration) time.Duration {
	begin, beginCPU := tooltest.Clock(unix.CLOCK_MONOTONIC), tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID)
	for {
		if used := tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID) - beginCPU; used >= cpu.Nanoseconds() {
			return time.Duration(tooltest.Clock(unix.CLOCK_MONOTONIC) - begin - used)
		}
	}
}

// both uses CPU time in two threads of this CPU at once.
func both(cpu int, each time.Duration) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		pin(cpu)
		spin(each)
		close(done)
	}()
	spin(each)
	<-done
}

// pass passes a byte back and forth, from descriptor 3 to 4.
func pass(n int, first bool) {
	buf := make([]byte, 1)
	for range n {
		if first {
			unix.Write(4, buf)
		}
		unix.Read(3, buf)
		if !first {
			unix.Write(4, buf)
		}
	}
}

// threads creates threads, one after another, that exit immediately.
func threads(n int) {
	done := make(chan struct{})
	for range n {
		go func() {
			// A goroutine that returns with its thread locked terminates the thread.
			runtime.LockOSThread()
			done <- struct{}{}
		}()
		<-done
	}
}

// Start starts a worker on the CPU. change can modify its command, or be nil.
func Start(t testing.TB, cpu int, change func(*exec.Cmd) *exec.Cmd) *Worker {
	t.Helper()
	tooltest.Root(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	if change != nil {
		cmd = change(cmd)
	}
	// With a single P, the Go scheduler does not hand work to other threads, for which the first
	// one would have to wait. It does not preempt a thread that spins either, which would block it.
	cmd.Env = append(os.Environ(), workerEnv+"="+strconv.Itoa(cpu), "GOMAXPROCS=1", tooltest.NoPreemption)
	cmd.Stderr = os.Stderr
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
	w := &Worker{cmd, in, bufio.NewReader(out), cmd.Process.Pid}
	t.Cleanup(w.Kill)
	w.End(t)
	return w
}

// Kill ends the worker.
func (w *Worker) Kill() {
	w.cmd.Process.Kill()
	w.cmd.Wait()
}

// Pair starts two workers that can play ping-pong.
func Pair(t testing.TB, cpuA, cpuB int, changeA func(*exec.Cmd) *exec.Cmd) (a, b *Worker) {
	t.Helper()
	readA, writeB, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	readB, writeA, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{readA, writeA, readB, writeB} {
		defer f.Close()
	}
	a = Start(t, cpuA, func(cmd *exec.Cmd) *exec.Cmd {
		if changeA != nil {
			cmd = changeA(cmd)
		}
		cmd.ExtraFiles = []*os.File{readA, writeA}
		return cmd
	})
	b = Start(t, cpuB, func(cmd *exec.Cmd) *exec.Cmd {
		cmd.ExtraFiles = []*os.File{readB, writeB}
		return cmd
	})
	return a, b
}

// Begin starts a job of the worker: "spin" for a number of milliseconds of CPU time, which answers by
// how much the elapsed time exceeded it, "both" for the same in two threads at once, "ping" or "pong" a
// number of times, "threads" a number of them, or "name" to change its name. Another name is a job that
// does nothing.
func (w *Worker) Begin(t testing.TB, name string, arg any) {
	t.Helper()
	if _, err := fmt.Fprintf(w.in, "%s %v\n", name, arg); err != nil {
		t.Fatal(err)
	}
}

// End waits until the worker blocks in read(2) again, and returns its answer.
func (w *Worker) End(t testing.TB) time.Duration {
	t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatalf("worker returned %q: %v", line, err)
	}
	var ns int64
	fmt.Sscan(line, &ns)
	for !w.isReading(t) || !w.isAsleep(t) {
		if w.cmd.Process.Signal(unix.Signal(0)) != nil {
			t.Fatal("worker has exited")
		}
		runtime.Gosched()
	}
	return time.Duration(ns)
}

// isReading reports whether the worker blocks in read(2): until there is a job, or for a lock.
func (w *Worker) isReading(t testing.TB) bool {
	t.Helper()
	return strings.HasPrefix(w.read(t, "syscall"), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
}

// isAsleep reports whether the worker sleeps until something happens. With PREEMPT_RT it can also block
// for a spin lock, which is another state (D, from 5.18 on: 25795ef6299f).
func (w *Worker) isAsleep(t testing.TB) bool {
	t.Helper()
	stat := w.read(t, "stat")
	return strings.HasPrefix(stat[strings.LastIndexByte(stat, ')')+1:], " S ")
}

func (w *Worker) read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/%s", w.PID, w.PID, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Facts are the counters of the kernel for a thread.
type Facts struct {
	Woken, Preempted uint64
	Wait, CPU        time.Duration // run_delay and sum_exec_runtime
	Hidden           uint64        // tooltest.HiddenRuns
}

// Facts reads the counters of the worker's thread-group leader.
func (w *Worker) Facts(t testing.TB) (f Facts) {
	t.Helper()
	for line := range strings.Lines(w.read(t, "status")) {
		fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &f.Woken)
		fmt.Sscanf(line, "nonvoluntary_ctxt_switches: %d", &f.Preempted)
	}
	fmt.Sscan(w.read(t, "schedstat"), (*int64)(&f.CPU), (*int64)(&f.Wait))
	f.Hidden = uint64(tooltest.HiddenRuns())
	return f
}

// Since returns the counters since a previous reading.
func (f Facts) Since(o Facts) Facts {
	return Facts{f.Woken - o.Woken, f.Preempted - o.Preempted, f.Wait - o.Wait, f.CPU - o.CPU, f.Hidden - o.Hidden}
}

// Play makes a and b play ping-pong and returns the counters of the kernel.
func Play(t testing.TB, a, b *Worker, trips int) [2]Facts {
	t.Helper()
	begin := [2]Facts{a.Facts(t), b.Facts(t)}
	b.Begin(t, "pong", trips)
	a.Begin(t, "ping", trips)
	a.End(t)
	b.End(t)
	return [2]Facts{a.Facts(t).Since(begin[0]), b.Facts(t).Since(begin[1])}
}

// Spin makes the workers use this amount of CPU time each. It returns a span of time in which all of
// them are runnable, from the time when the last one begins: none ends before it has run that long. A
// worker can block in that span though, as for a spin lock with PREEMPT_RT: blocked is how often.
func Spin(t testing.TB, all []*Worker, cpu time.Duration) (begin, end time.Time, blocked uint64) {
	t.Helper()
	before := facts(t, all)
	for _, w := range all {
		w.Begin(t, "spin", cpu.Milliseconds())
	}
	written := time.Now()
	for i, w := range all {
		// A worker that is not woken yet is not runnable. One that is late has ended again.
		for !w.hasBegun(t, &before[i]) && time.Since(written) < cpu {
			runtime.Gosched()
		}
	}
	begin = time.Now()
	time.Sleep(time.Until(written.Add(cpu * 9 / 10)))
	end = written.Add(cpu)
	if now := time.Now(); now.Before(end) {
		end = now
	}
	for i, f := range facts(t, all) {
		blocked += f.Woken - before[i].Woken
	}
	for _, w := range all {
		w.End(t)
	}
	return begin, end, blocked
}

func facts(t testing.TB, all []*Worker) (out []Facts) {
	t.Helper()
	for _, w := range all {
		out = append(out, w.Facts(t))
	}
	return out
}

// hasBegun reports whether the worker uses its CPU: it is runnable, and has run for some time since it was
// woken. Then it sets the number of its sleeps.
func (w *Worker) hasBegun(t testing.TB, f *Facts) bool {
	t.Helper()
	now := w.Facts(t)
	if now.CPU-f.CPU < time.Millisecond || !strings.HasPrefix(w.read(t, "syscall"), "running") {
		return false
	}
	f.Woken = now.Woken
	return true
}

// Time returns the time of a row.
func Time(t testing.TB, r tooltest.Row) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, r.Str("time"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// SteadyClock skips the rest of the test if the clock of the scheduler, which run_delay and CPU time
// use, advances only in jumps, as on emulated machines.
func SteadyClock(t testing.TB) {
	t.Helper()
	name, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		t.Fatal(err)
	}
	switch source := strings.TrimSpace(string(name)); source {
	case "hpet", "acpi_pm", "refined-jiffies", "jiffies":
		t.Skipf("counts compared, times not: the clock source is %s", source)
	}
}

// Pressure returns the time in which a task waited for a CPU, as the mean of all CPUs weighted by the
// time in which they were not idle (/proc/pressure/cpu). It skips the test in a kernel without it.
func Pressure(t testing.TB) (waited time.Duration) {
	t.Helper()
	text, err := os.ReadFile("/proc/pressure/cpu")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("the kernel does not measure pressure: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, total, _ := strings.Cut(string(text), "total=")
	var us int64
	if _, err := fmt.Sscan(total, &us); err != nil {
		t.Fatalf("read pressure %q: %v", text, err)
	}
	return time.Duration(us) * time.Microsecond
}

// Near reports whether two times are equal within 5 % and the hidden time.
func Near(got, want, hidden time.Duration) bool {
	return got <= want+want/20 && got >= want-want/20-hidden
}

// Unobserved returns the number of events that the run reports as unobserved, also those of a hidden
// process.
func Unobserved(res *tooltest.Result) uint64 {
	return uint64(res.Summary.Object("reasons").Num("unobserved"))
}
