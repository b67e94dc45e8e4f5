package runqlat

import (
	"bufio"
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

// A worker is a process whose thread-group leader executes jobs on one CPU and otherwise blocks in
// read(2). The kernel counts its voluntary context switches (to sleep) and involuntary ones;
// between two blocking reads, these are the numbers of waits after a wake-up and after a
// preemption.
type worker struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
	pid int // also the ID of its thread-group leader
}

const workerEnv = "CORESCOPE_RUNQLAT_WORKER"

func init() {
	if os.Getenv(workerEnv) != "" {
		// In init, to run on the thread-group leader.
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if cpu, err := strconv.Atoi(os.Getenv(workerEnv)); err == nil {
		pin(cpu)
		work()
		return
	}
	os.Exit(m.Run())
}

// work does the jobs on standard input, and answers each.
func work() {
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

// cpus lists the CPUs that this process may use.
func cpus(t testing.TB) []int {
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

// spin uses CPU time, and returns by how much the elapsed time exceeds it.
func spin(cpu time.Duration) time.Duration {
	begin, beginCPU := now(unix.CLOCK_MONOTONIC), now(unix.CLOCK_THREAD_CPUTIME_ID)
	for {
		if used := now(unix.CLOCK_THREAD_CPUTIME_ID) - beginCPU; used >= cpu {
			return now(unix.CLOCK_MONOTONIC) - begin - used
		}
	}
}

// now reads a clock of the kernel with a raw system call. If a call through the Go scheduler takes
// long, the thread loses its P and has to wait for one.
func now(clock uintptr) time.Duration {
	var ts unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
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

// start starts a worker on the CPU. change can modify its command, or be nil.
func start(t testing.TB, cpu int, change func(*exec.Cmd) *exec.Cmd) *worker {
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
	// one would have to wait.
	cmd.Env = append(os.Environ(), workerEnv+"="+strconv.Itoa(cpu), "GOMAXPROCS=1")
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
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	w := &worker{cmd, in, bufio.NewReader(out), cmd.Process.Pid}
	w.end(t)
	return w
}

// pair starts two workers that can play ping-pong.
func pair(t testing.TB, cpuA, cpuB int, changeA func(*exec.Cmd) *exec.Cmd) (a, b *worker) {
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
	a = start(t, cpuA, func(cmd *exec.Cmd) *exec.Cmd {
		if changeA != nil {
			cmd = changeA(cmd)
		}
		cmd.ExtraFiles = []*os.File{readA, writeA}
		return cmd
	})
	b = start(t, cpuB, func(cmd *exec.Cmd) *exec.Cmd {
		cmd.ExtraFiles = []*os.File{readB, writeB}
		return cmd
	})
	return a, b
}

func (w *worker) begin(t testing.TB, name string, arg any) {
	t.Helper()
	if _, err := fmt.Fprintf(w.in, "%s %v\n", name, arg); err != nil {
		t.Fatal(err)
	}
}

// end waits until the worker blocks in read(2) again, and returns its answer.
func (w *worker) end(t testing.TB) time.Duration {
	t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatalf("worker returned %q: %v", line, err)
	}
	var ns int64
	fmt.Sscan(line, &ns)
	resting := fmt.Sprintf("%d 0x0 ", unix.SYS_READ)
	for !strings.HasPrefix(w.read(t, "syscall"), resting) {
		if w.cmd.Process.Signal(unix.Signal(0)) != nil {
			t.Fatal("worker has exited")
		}
		runtime.Gosched()
	}
	return time.Duration(ns)
}

func (w *worker) read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/%s", w.pid, w.pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// facts are the counters of the kernel for a thread.
type facts struct {
	wakeup, preempted uint64
	wait              time.Duration // run_delay
	hidden            uint64        // tooltest.HiddenRuns
}

func (w *worker) facts(t testing.TB) (f facts) {
	t.Helper()
	for line := range strings.Lines(w.read(t, "status")) {
		fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &f.wakeup)
		fmt.Sscanf(line, "nonvoluntary_ctxt_switches: %d", &f.preempted)
	}
	var cpu uint64
	fmt.Sscan(w.read(t, "schedstat"), &cpu, &f.wait)
	f.hidden = uint64(tooltest.HiddenRuns())
	return f
}

// since returns the counters since a previous reading.
func (f facts) since(o facts) facts {
	return facts{f.wakeup - o.wakeup, f.preempted - o.preempted, f.wait - o.wait, f.hidden - o.hidden}
}
