package syscount

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

	"github.com/corescope/corescope/internal/tooltest"
)

// actEnv names the action that the test binary executes as a child of the test.
const actEnv = "CORESCOPE_ACT"

// act waits for a byte and executes the action. It exits with an error if the action fails.
func act(name string) {
	os.Stdout.WriteString(".")
	os.Stdin.Read(make([]byte, 1))
	var err error
	switch verb, path, _ := strings.Cut(name, " "); verb {
	case "execve":
		err = unix.Exec(path, []string{path}, nil)
	case "execveat":
		err = execveat(path)
	case "wait":
		err = waitOnFirstThread()
	case "thread":
		err = execFromThread(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(1)
	}
}

// onFirstThread calls f on the thread-group leader. It is called in a goroutine of its own.
func onFirstThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		go onFirstThread(f)
		select {} // keeps the other thread blocked
	}
	f()
}

// execFromThread executes a file in a thread other than the leader, while the leader waits in ppoll.
func execFromThread(path string) error {
	failed := make(chan error)
	go onFirstThread(func() {
		go func() {
			for !sleeps(os.Getpid()) {
				time.Sleep(time.Millisecond)
			}
			failed <- unix.Exec(path, []string{path}, nil)
		}()
		unix.Ppoll(nil, nil, nil)
	})
	return <-failed
}

func execveat(path string) error {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	var none [1]*byte
	at := unix.AT_FDCWD
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(at), uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&none)), uintptr(unsafe.Pointer(&none)), 0, 0)
	return errno
}

// waitOnFirstThread makes the thread-group leader wait in ppoll while another thread maps and
// unmaps a page.
func waitOnFirstThread() error {
	done := make(chan error)
	go onFirstThread(func() { done <- pollUntilUnmapped() })
	return <-done
}

func pollUntilUnmapped() error {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return err
	}
	go func() {
		for !sleeps(os.Getpid()) {
			time.Sleep(time.Millisecond)
		}
		page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			panic(err)
		}
		unix.Munmap(page)
		unix.Write(pipe[1], []byte("."))
	}()
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}, nil, nil)
	return err
}

// sleeps reports whether the thread sleeps, from its state in /proc.
func sleeps(tid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "S")
}

// runAct counts the system calls of a child that executes the action once the tool is ready.
func runAct(t *testing.T, name string, args ...string) *tooltest.Result {
	t.Helper()
	tooltest.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actEnv+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	out.Read(make([]byte, 1))
	return tooltest.JSON(t, Tool, append(args, "--pid", fmt.Sprint(cmd.Process.Pid)), func() {
		in.Write([]byte("."))
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// TestLatencyOfFirstThread uses munmap, whose number on x86-64 is that of execve on i386. It must
// not be mistaken for an exec that ends the pending call of the thread-group leader.
func TestLatencyOfFirstThread(t *testing.T) {
	res := runAct(t, "wait", "-L", "--syscall", "ppoll")
	if n := sum(res.Rows, "ppoll", "count"); n != 1 {
		t.Errorf("%v calls of ppoll, want 1", n)
	}
	if n := res.Summary.Object("counters").Num("no_entry"); n != 0 {
		t.Errorf("no_entry is %v, want 0", n)
	}
}

// TestLatencyOfExecInThread executes a program in a thread, which takes over the ID of the leader: the
// exec has its own entry, and so has the call in which the leader is killed.
func TestLatencyOfExecInThread(t *testing.T) {
	res := runAct(t, "thread /bin/true", "-L", "--strict")
	for _, call := range []string{"ppoll", "execve"} {
		if n := sum(res.Rows, call, "count"); n != 1 {
			t.Errorf("%v calls of %s, want 1", n, call)
		}
	}
	if n := res.Summary.Num("lost"); n != 0 {
		t.Errorf("%v calls were lost", n)
	}
}

// TestExecByItsOwnName checks successful execs: the registers at their return contain neither
// number nor ABI.
func TestExecByItsOwnName(t *testing.T) {
	prog := func(t *testing.T, abi string) string {
		if abi == "compat" {
			return tooltest.I386(t, nil, func(uint32) []byte { return tooltest.Exit386() })
		}
		return (&tooltest.Native{Touches: 1}).Write(t)
	}
	for _, tt := range []struct{ call, abi string }{
		{"execve", "native"}, {"execveat", "native"}, {"execve", "compat"}, {"execveat", "compat"},
	} {
		t.Run(tt.call+" of a "+tt.abi+" program", func(t *testing.T) {
			res := runAct(t, tt.call+" "+prog(t, tt.abi))
			got := map[string]float64{}
			for _, r := range res.Rows {
				if strings.HasPrefix(r.Str("syscall"), "execve") {
					got[r.Str("syscall")+" "+r.Str("abi")] = r.Num("count")
				}
			}
			if len(got) != 1 || got[tt.call+" native"] != 1 {
				t.Errorf("exec calls %v, want one native %s", got, tt.call)
			}
			if n := res.Summary.Object("counters").Num("exec_without_entry"); n != 0 {
				t.Errorf("exec_without_entry is %v", n)
			}
		})
	}
}

// TestExecByCompat checks that a call of a 32-bit program has its ABI, whatever it executes.
func TestExecByCompat(t *testing.T) {
	data := append([]byte((&tooltest.Native{Touches: 1}).Write(t)), 0)
	prog := tooltest.I386(t, data, func(data uint32) []byte {
		return append(tooltest.Call386(11, data, 0, 0), tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{"--ppid", self()}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	compat := 0.0
	for _, r := range res.Rows {
		if r.Str("syscall") == "execve" && r.Str("abi") == "compat" {
			compat += r.Num("count")
		}
	}
	if compat != 1 {
		t.Errorf("rows %v, want one execve of the 32-bit program", res.Rows)
	}
}
