package tooltest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// wakesEnv has a test program be a thread that waits, and one that wakes it.
const wakesEnv = "CORESCOPE_WAKES"

// Wakes is how often the thread of [RunWakes] is woken, each time after 20 ms.
const Wakes = 20

// MainOfWakes is the TestMain of tests that call [RunWakes].
func MainOfWakes(m *testing.M) {
	if os.Getenv(wakesEnv) != "" {
		nameThread("cs-target")
		os.Stdin.Read(make([]byte, 1))
		pipe := [2]int{}
		unix.Pipe(pipe[:])
		go wakeOther(pipe[1])
		fmt.Println(waitForOther(pipe[0]))
		return
	}
	os.Exit(m.Run())
}

// nameThread keeps the goroutine on its thread, which it gives a name.
func nameThread(s string) {
	runtime.LockOSThread()
	b, _ := unix.BytePtrFromString(s)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
}

//go:noinline
func wakeOther(fd int) {
	nameThread("cs-waker")
	b := [1]byte{}
	for range Wakes {
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
	for n := 0; n < Wakes; {
		begin := time.Now()
		if got, _, _ := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1); got == 1 {
			n++
		}
		ns += int64(time.Since(begin))
	}
	return ns
}

// RunWakes runs a tool around a thread cs-target that waits in waitForOther for a thread
// cs-waker, which wakes it in wakeOther. It returns how many ns were waited so, and the
// rows of these waits.
func RunWakes(t *testing.T, tl *tool.Tool, args ...string) (waited float64, rows []Row, res *Result) {
	t.Helper()
	Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), wakesEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	res = JSON(t, tl, append([]string{"--pid", fmt.Sprint(cmd.Process.Pid)}, args...), func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if _, err := fmt.Sscan(out.String(), &waited); err != nil {
		t.Fatalf("worker says %q: %v", &out, err)
	}
	return waited, res.Where(func(r Row) bool { return r.Str("comm") == "cs-target" && r.Str("waker") == "cs-waker" }), res
}
