package wakeuptime

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
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

// The waker that the test made is named, for all the time that was waited.
func TestWaker(t *testing.T) {
	waited, rows, res := trace(t)
	var ns, count float64
	for _, r := range rows {
		if !has(r, "kernel_stack", "pipe_write") {
			continue // a signal of the runtime's
		}
		if r.Num("waker_pid") != r.Num("pid") {
			t.Errorf("waker is %v", r)
		}
		ns += r.Num("total_ns")
		count += r.Num("count")
	}
	// The reader's time has the wait for a CPU in it, and on a slow machine it finds some
	// bytes there when it comes.
	if count < wakes/2 || count > wakes || ns < waited*0.5 || ns > waited*1.02 {
		t.Errorf("%.0f waits of %.2f ms, want %d of %.2f: %v", count, ns/1e6, wakes, waited/1e6, res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("lost %d", lost)
	}
}

func TestLength(t *testing.T) {
	if _, rows, _ := trace(t, "-m", "200000"); len(rows) != 0 {
		t.Errorf("of waits of 20 ms these are longer than 200: %v", rows)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyWay(t)
	out := tooltest.Text(t, Tool, []string{"--duration", "1s"}, nil)
	block := regexp.MustCompile(`(?m)^    target:          .+ \(\d+\)\n(    \S+\n)+    waker:           .+ \(\d+\)\n        \d+\n\n`)
	if !block.MatchString(out) {
		t.Errorf("text is %s", out)
	}
}
