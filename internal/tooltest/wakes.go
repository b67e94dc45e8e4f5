package tooltest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// wakesEnv makes a test binary run the threads of [RunWakes].
const wakesEnv = "CORESCOPE_WAKES"

// Wakes is the number of times that the thread of [RunWakes] is woken, each time after 20 ms.
const Wakes = 20

// MainOfWakes is the TestMain of tests that call [RunWakes].
func MainOfWakes(m *testing.M) {
	if os.Getenv(wakesEnv) != "" {
		OwnThreads()
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

// OwnThreads is called by programs whose waits are measured, and NoPreemption is set in their
// environment. In functions that call only [unix.RawSyscall] and [Clock], their threads then do not
// wait for the Go runtime, because up to four threads keep their P (GOMAXPROCS) during system
// calls.
func OwnThreads() { runtime.GOMAXPROCS(4) }

// NoPreemption is an environment variable, see [OwnThreads].
const NoPreemption = "GODEBUG=asyncpreemptoff=1"

// Clock reads a clock of the kernel, in ns.
//
//go:nosplit
func Clock(clock int32) int64 {
	var t unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// nameThread locks the goroutine to its thread and sets the name of the thread.
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
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
		unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1)
	}
}

// waitForOther returns the total time that it waited, in ns.
//
//go:noinline
func waitForOther(fd int) (ns int64) {
	b := [1]byte{}
	for n := 0; n < Wakes; {
		begin := Clock(unix.CLOCK_MONOTONIC)
		if got, _, _ := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1); got == 1 {
			n++
		}
		ns += Clock(unix.CLOCK_MONOTONIC) - begin
	}
	return ns
}

// RunWakes runs a tool while a thread cs-target waits in waitForOther for a thread cs-waker, which
// wakes it in wakeOther. It returns the total time of the waits in ns, and their rows.
func RunWakes(t *testing.T, tl *tool.Tool, args ...string) (waited float64, rows []Row, res *Result) {
	t.Helper()
	Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), wakesEnv+"=1", NoPreemption)
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
		t.Fatalf("read duration from output of the process %q: %v", &out, err)
	}
	return waited, res.Where(func(r Row) bool { return r.Str("comm") == "cs-target" && r.Str("waker") == "cs-waker" }), res
}
