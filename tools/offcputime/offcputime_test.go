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

// workerEnv has the test program wait, in known ways, when standard input ends.
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

// work waits, and says how long in each way, how long in all, and of that on the CPU.
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

// waitForEnd returns at the end of standard input. Neither here nor in what follows the
// thread waits for the Go runtime where its waits are not measured.
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

// moment is when, and how long the thread had run until then.
type moment struct{ time, cpu int64 }

//go:nosplit
func now() moment {
	return moment{tooltest.Clock(unix.CLOCK_MONOTONIC), tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID)}
}

// offCPU is how long the thread was off the CPU since. The clocks are read the other way
// round, so that a wait between the two counts.
//
//go:nosplit
func (m moment) offCPU() int64 {
	cpu := tooltest.Clock(unix.CLOCK_THREAD_CPUTIME_ID) - m.cpu
	return tooltest.Clock(unix.CLOCK_MONOTONIC) - m.time - cpu
}

// napLong returns how long it was off the CPU, as those that follow.
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

// waitForLock waits for a word that nobody changes.
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

// waits are what the worker says.
type waits struct{ tid, naps, locks, reads, all int64 }

// trace runs the tool around the worker.
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
		t.Fatalf("the worker does not begin: %v", lines.Err())
	}
	var said string
	res := tooltest.JSON(t, Tool, append([]string{"--pid", fmt.Sprint(cmd.Process.Pid)}, args...), func() {
		in.Close()
		lines.Scan()
		said = lines.Text()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var w waits
	if _, err := fmt.Sscan(said, &w.tid, &w.naps, &w.locks, &w.reads, &w.all); err != nil {
		t.Fatalf("worker says %q: %v", said, err)
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

// All the time of a thread that it does not run is somebody's, and named.
func TestWaits(t *testing.T) {
	var complaint string
	for range 3 { // a machine that stands still between the kernel's clock and ours is no fault
		w, res := trace(t)
		for _, r := range res.Rows {
			if got := r.Symbols("kernel_stack"); len(got) == 0 || !strings.Contains(got[0]+" "+got[1], "schedule") {
				t.Errorf("a wait begins in %v", got)
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

// compare says what differs between what the worker has waited and what is told of it.
func (w *waits) compare(res *tooltest.Result) (complaint string) {
	for function, want := range map[string]float64{
		".napLong": float64(w.naps), ".waitForLock": float64(w.locks), ".readPipe": float64(w.reads),
	} {
		if got := w.sum(res, function); !near(got, want, 0.1) {
			complaint += fmt.Sprintf("%s waited %.1f ms, want %.1f\n", function, got/1e6, want/1e6)
		}
	}
	// Between these it may have to wait for its right to run Go.
	if got, want := w.sum(res, ".work")+w.sum(res, "runtime.stoplockedm"), float64(w.all); !near(got, want, tolerance()) {
		complaint += fmt.Sprintf("%.2f ms in all, want %.2f: wall time without CPU time\n", got/1e6, want/1e6)
	}
	return complaint
}

// tolerance is 2 %, but where process 1 is hidden: a wait that ends as that gives up the CPU
// is not seen.
func tolerance() float64 {
	if tooltest.HidesProcess1() {
		return 0.1
	}
	return 0.02
}

// Each kind of wait is in the kernel's functions that it is known by.
func TestKernelStacks(t *testing.T) {
	w, res := trace(t, "--state", "1")
	kinds := map[string]string{".napLong": "nanosleep", ".waitForLock": "futex", ".readPipe": "pipe_read"}
	for _, r := range res.Rows {
		user := strings.Join(r.Symbols("user_stack"), " ")
		for function, want := range kinds {
			// A thread of Go's that comes back from a system call may wait for its turn there.
			isOwn := !strings.HasPrefix(user, "runtime.futex")
			if r.Num("tid") == float64(w.tid) && isOwn && strings.Contains(user, function+" ") && !strings.Contains(strings.Join(r.Symbols("kernel_stack"), " "), want) {
				t.Errorf("%s waits in %v", function, r.Symbols("kernel_stack"))
			}
		}
	}
	// What is left is the time that the thread could run on, but was not let.
	if got := w.sum(res, ".napLong"); got < 0.5*float64(w.naps) || got > 1.02*float64(w.naps) {
		t.Errorf("naps are %.1f ms, want %.1f", got/1e6, float64(w.naps)/1e6)
	}
}

// Only waits of that length count.
func TestLengths(t *testing.T) {
	w, res := trace(t, "-m", "14000", "-M", "40000", "-U")
	if w.sum(res, ".napLong") == 0 {
		t.Error("there are no naps of 15 ms")
	}
	for _, r := range res.Rows {
		if mean := r.Num("total_ns") / r.Num("count"); mean < 14e6 || mean > 40e6 {
			t.Errorf("waits of %.1f ms: %v", mean/1e6, r)
		}
		if r.Has("kernel_stack") {
			t.Errorf("with -U there is a stack of the kernel: %v", r)
		}
	}
}

// Threads of the kernel have no stack of their own, and are asked for by -k.
func TestKernelThreads(t *testing.T) {
	tooltest.AnyWay(t)
	res := tooltest.JSON(t, Tool, []string{"-k", "--duration", "1s"}, nil)
	if len(res.Rows) == 0 {
		t.Error("no thread of the kernel waited in a second")
	}
	for _, r := range res.Rows {
		if r.Has("user_stack") || r.Num("pid") == 0 {
			t.Errorf("thread of the kernel is %v", r)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyWay(t)
	out := tooltest.Text(t, Tool, []string{"-k", "-f", "--duration", "1s"}, nil)
	if !strings.Contains(out, ";ret_from_fork") || !strings.Contains(out, "schedule ") {
		t.Errorf("folded stacks are %s", out)
	}
}
