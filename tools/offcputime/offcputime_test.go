package offcputime

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// workerEnv makes the test binary wait, in several ways, at the end of standard input.
const workerEnv = "CORESCOPE_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		tooltest.OwnThreads()
		runtime.LockOSThread()
		say("here")
		waitForEnd()
		say(work())
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	os.Exit(m.Run())
}

// work waits, and prints the time waited in each way, the total time, and the CPU time.
func work() string {
	tid := unix.Gettid()
	pipe := [2]int{}
	unix.Pipe(pipe[:])
	begin := now()
	naps, locks := napLong(20), waitForLock(20)
	go feed(pipe[1])
	reads := readPipe(pipe[0])
	return fmt.Sprint(tid, naps, locks, reads, begin.offCPU())
}

// waitForEnd returns at the end of standard input. Until the measured waits begin and after they
// end, the thread does not wait for the Go runtime.
func waitForEnd() {
	b := make([]byte, 1)
	for {
		if n, _, errno := unix.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b[0])), 1); n == 0 && errno == 0 {
			return
		}
	}
}

// say writes a line.
func say(text string) {
	b := []byte(text + "\n")
	unix.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
}

// moment is a time with the CPU time of the thread until then.
type moment struct{ time, cpu int64 }

//go:nosplit
func now() moment {
	return moment{tooltest.Clock(unix.CLOCK_MONOTONIC), tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID)}
}

// offCPU returns how long the thread was off the CPU since m. The clocks are read in reverse order,
// so that a wait between the two readings is included.
//
//go:nosplit
func (m moment) offCPU() int64 {
	cpu := tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID) - m.cpu
	return tooltest.Clock(unix.CLOCK_MONOTONIC) - m.time - cpu
}

// napLong sleeps. It returns its off-CPU time, as do the following functions.
//
//go:noinline
func napLong(n int) int64 {
	before := now()
	for range n {
		t := unix.Timespec{Nsec: 15e6}
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
	}
	return before.offCPU()
}

// waitForLock waits for a futex that never changes.
//
//go:noinline
func waitForLock(n int) int64 {
	before := now()
	var word uint32
	for range n {
		t := unix.Timespec{Nsec: 10e6}
		unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0, 0, uintptr(unsafe.Pointer(&t)), 0, 0)
	}
	return before.offCPU()
}

// readPipe reads until the other end is closed.
//
//go:noinline
func readPipe(fd int) int64 {
	before := now()
	var b [1]byte
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1)
		if n != 1 && errno != unix.EINTR {
			return before.offCPU()
		}
	}
}

func feed(fd int) {
	for range 10 {
		time.Sleep(12 * time.Millisecond)
		unix.Write(fd, []byte{0})
	}
	unix.Close(fd)
}

// waits are the times that the worker prints.
type waits struct{ tid, naps, locks, reads, all int64 }

// trace runs the tool while the worker waits.
func trace(t *testing.T, args ...string) (waits, *tooltest.Result) {
	t.Helper()
	tooltest.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1", tooltest.NoPreemption)
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
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the worker does not start: %v", lines.Err())
	}
	var report string
	res := tooltest.JSON(t, Tool, append([]string{"--pid", fmt.Sprint(cmd.Process.Pid)}, args...), func() {
		in.Close()
		lines.Scan()
		report = lines.Text()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var w waits
	if _, err := fmt.Sscan(report, &w.tid, &w.naps, &w.locks, &w.reads, &w.all); err != nil {
		t.Fatalf("worker prints %q: %v", report, err)
	}
	return w, res
}

// sum adds up the waits of the worker's thread whose stacks have the function.
func (w *waits) sum(res *tooltest.Result, function string) (ns float64) {
	for _, r := range res.Rows {
		if r.Num("tid") == float64(w.tid) && slices.ContainsFunc(r.Symbols("user_stack"), func(s string) bool { return strings.HasSuffix(s, function) }) {
			ns += r.Num("total_ns")
		}
	}
	return ns
}

func near(got, want, share float64) bool { return got >= want*(1-share) && got <= want*(1+share) }

// TestWaits checks that all off-CPU time of a thread is shown with its function.
func TestWaits(t *testing.T) {
	var complaint string
	for range 3 { // repeated if the machine stalls between readings of the two clocks
		w, res := trace(t)
		for _, r := range res.Rows {
			if got := r.Symbols("kernel_stack"); len(got) == 0 || !strings.Contains(got[0]+" "+got[1], "schedule") {
				t.Errorf("a wait is in %v", got)
			}
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("lost %d", lost)
		}
		if complaint = w.compare(res); complaint == "" {
			return
		}
	}
	t.Error(complaint)
}

// compare returns the differences between the waits of the worker and those shown.
func (w *waits) compare(res *tooltest.Result) (complaint string) {
	for function, want := range map[string]float64{
		".napLong": float64(w.naps), ".waitForLock": float64(w.locks), ".readPipe": float64(w.reads),
	} {
		if got := w.sum(res, function); !near(got, want, 0.1) {
			complaint += fmt.Sprintf("%s waited %.1f ms, want %.1f\n", function, got/1e6, want/1e6)
		}
	}
	// Between these it can wait for a P of the Go scheduler.
	if got, want := w.sum(res, ".work")+w.sum(res, "runtime.stoplockedm"), float64(w.all); !near(got, want, tolerance()) {
		complaint += fmt.Sprintf("%.2f ms in total, want %.2f: wall time minus CPU time\n", got/1e6, want/1e6)
	}
	return complaint
}

// tolerance is 2 %, or more if process 1 is hidden: the end of a wait is not observed if process 1
// leaves the CPU at that time.
func tolerance() float64 {
	if tooltest.HidesProcess1() {
		return 0.1
	}
	return 0.02
}

// TestKernelStacks checks the kernel functions of each kind of wait.
func TestKernelStacks(t *testing.T) {
	w, res := trace(t, "--state", "1")
	kinds := map[string]string{".napLong": "nanosleep", ".waitForLock": "futex", ".readPipe": "pipe_read"}
	for _, r := range res.Rows {
		user := strings.Join(r.Symbols("user_stack"), " ")
		for function, want := range kinds {
			// A Go thread that returns from a system call can wait for its turn there.
			isOwn := !strings.HasPrefix(user, "runtime.futex")
			if r.Num("tid") == float64(w.tid) && isOwn && strings.Contains(user, function+" ") && !strings.Contains(strings.Join(r.Symbols("kernel_stack"), " "), want) {
				t.Errorf("%s waits in %v", function, r.Symbols("kernel_stack"))
			}
		}
	}
	// The rest is the time in which the thread was runnable, but did not run.
	if got := w.sum(res, ".napLong"); got < 0.5*float64(w.naps) || got > 1.02*float64(w.naps) {
		t.Errorf("naps are %.1f ms, want %.1f", got/1e6, float64(w.naps)/1e6)
	}
}

// TestLengths checks the filter for the length of waits.
func TestLengths(t *testing.T) {
	w, res := trace(t, "-m", "14000", "-M", "40000", "-U")
	if w.sum(res, ".napLong") == 0 {
		t.Error("no naps of 15 ms")
	}
	for _, r := range res.Rows {
		if mean := r.Num("total_ns") / r.Num("count"); mean < 14e6 || mean > 40e6 {
			t.Errorf("waits of %.1f ms: %v", mean/1e6, r)
		}
		if r.Has("kernel_stack") {
			t.Errorf("kernel stack with -U: %v", r)
		}
	}
}

// TestKernelThreads checks that kernel threads have no user stack, and are selected with -k.
func TestKernelThreads(t *testing.T) {
	tooltest.AnyAttachType(t)
	res := tooltest.JSON(t, Tool, []string{"-k", "--duration", "1s"}, nil)
	if len(res.Rows) == 0 {
		t.Error("no kernel thread waited for a second")
	}
	for _, r := range res.Rows {
		if r.Has("user_stack") || r.Num("pid") == 0 {
			t.Errorf("kernel thread is %v", r)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"-k", "-f", "--duration", "1s"}, nil)
	if !strings.Contains(out, ";ret_from_fork") || !strings.Contains(out, "schedule ") {
		t.Errorf("folded stacks are %s", out)
	}
}
