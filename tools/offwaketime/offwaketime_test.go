package offwaketime

import (
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

// workerEnv has the test program be a thread that waits, and one that wakes it.
const workerEnv = "CORESCOPE_WAKES"

const wakes = 20

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		name("cs-target")
		os.Stdin.Read(make([]byte, 1))
		pipe := [2]int{}
		unix.Pipe(pipe[:])
		go wakeOther(pipe[1])
		fmt.Println(waitForOther(pipe[0]))
		return
	}
	os.Exit(m.Run())
}

// name keeps the goroutine on its thread, which it gives a name.
func name(s string) {
	runtime.LockOSThread()
	b, _ := unix.BytePtrFromString(s)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
}

//go:noinline
func wakeOther(fd int) {
	name("cs-waker")
	b := [1]byte{}
	for range wakes {
		t := unix.NsecToTimespec(20e6)
		unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
		unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1)
	}
}

// waitForOther returns how long it waited.
//
//go:noinline
func waitForOther(fd int) (ns int64) {
	b := [1]byte{}
	for n := 0; n < wakes; {
		begin := time.Now()
		if got, _, _ := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1); got == 1 {
			n++
		}
		ns += int64(time.Since(begin))
	}
	return ns
}

// trace runs the tool around the worker, and returns the rows of waits that the waker ended.
func trace(t *testing.T, args ...string) (waited float64, rows []tooltest.Row, res *tooltest.Result) {
	t.Helper()
	tooltest.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	res = tooltest.JSON(t, Tool, append([]string{"--pid", fmt.Sprint(cmd.Process.Pid)}, args...), func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if _, err := fmt.Sscan(out.String(), &waited); err != nil {
		t.Fatalf("worker says %q: %v", &out, err)
	}
	return waited, res.Where(func(r tooltest.Row) bool { return r.Str("comm") == "cs-target" && r.Str("waker") == "cs-waker" }), res
}

func symbols(r tooltest.Row, key string) (all []string) {
	frames, _ := r[key].([]any)
	for _, f := range frames {
		frame, _ := f.(map[string]any)
		symbol, _ := frame["symbol"].(string)
		all = append(all, symbol)
	}
	return all
}

func has(r tooltest.Row, key, function string) bool {
	return slices.ContainsFunc(symbols(r, key), func(s string) bool { return strings.HasSuffix(s, function) })
}

// The waker that the test made is named, with its stacks and those of who waited, for all
// the time that was waited.
func TestWaker(t *testing.T) {
	waited, rows, res := trace(t)
	var ns, count float64
	for _, r := range rows {
		if !has(r, "user_stack", ".waitForOther") || !has(r, "kernel_stack", "pipe_read") {
			continue
		}
		if !has(r, "waker_user_stack", ".wakeOther") || !has(r, "waker_kernel_stack", "pipe_write") {
			t.Errorf("woken by %v, %v", symbols(r, "waker_user_stack"), symbols(r, "waker_kernel_stack"))
		}
		if r.Num("waker_pid") != r.Num("pid") || r.Num("waker_tid") == r.Num("tid") {
			t.Errorf("waker is %v", r)
		}
		ns += r.Num("total_ns")
		count += r.Num("count")
	}
	// On a slow machine the reader finds some bytes there when it comes.
	if count < wakes/2 || count > wakes || ns < waited*0.8 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

// Who could run on is woken by nobody.
func TestPreempted(t *testing.T) {
	_, rows, res := trace(t, "--state", "0")
	if len(rows) != 0 {
		t.Errorf("waits of threads that could run have wakers: %v", rows)
	}
	for _, r := range res.Rows {
		if r.Has("waker_kernel_stack") {
			t.Errorf("row has a waker's stack: %v", r)
		}
	}
}

// Folded stacks go from who waited to who woke it.
func TestFolded(t *testing.T) {
	tooltest.AnyWay(t)
	out := tooltest.Text(t, Tool, []string{"-f", "-d", "--duration", "1s"}, nil)
	if !strings.Contains(out, ";schedule;__schedule;--;try_to_wake_up;") {
		t.Errorf("folded stacks are %s", out)
	}
}
