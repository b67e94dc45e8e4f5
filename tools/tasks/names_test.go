package tasks

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// withoutFirstThread selects the child whose thread-group leader exits.
const withoutFirstThread = "without first thread"

func childWithoutFirstThread() {
	memory := make([]byte, childMemory)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	go exitFirstThread()
	for fields := []string(nil); len(fields) < 4 || fields[3] != "Z"; fields = stat(fmt.Sprintf("/proc/self/task/%d", os.Getpid())) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(memory)
	os.Exit(0)
}

// exitFirstThread makes the thread-group leader exit, once it runs a goroutine of this function.
func exitFirstThread() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	go exitFirstThread()
	select {} // blocks this thread, so that the next goroutine runs on another one
}

// A process keeps its memory and its arguments until its last thread exits.
func TestFirstThreadHasExited(t *testing.T) {
	tooltest.Root(t)
	pid := startAs(t, withoutFirstThread)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads %q, %v", threads, err)
	}
	tid, err := strconv.Atoi(filepath.Base(threads[len(threads)-1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"-T"}} {
		res := tooltest.JSON(t, Tool, append(args, "-p", strconv.Itoa(pid), "--columns", "all"), nil)
		first := res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == pid })
		if len(first) != 1 {
			t.Fatalf("%q: rows of the thread-group leader are %v, want one", args, first)
		}
		row := first[0]
		if row.Str("state") != "Z" || len(row.List("args")) != 3 {
			t.Errorf("%q: state %s, arguments %q, want Z and three arguments", args, row.Str("state"), row.List("args"))
		}
		if got, want := row.Num("rss_bytes"), resident(t, tid); math.Abs(got-want) > 2<<20 || got < childMemory {
			t.Errorf("%q: memory is %v, want %v", args, got, want)
		}
		if got, want := row.Num("virtual_bytes"), number(t, stat(fmt.Sprintf("/proc/%d", tid))[23]); got != want {
			t.Errorf("%q: address space is %v, want %v", args, got, want)
		}
	}
}

// Kernel threads have the names that /proc shows, some of which are longer than the 15 bytes of a
// task's name. The suffix of a worker's name changes with its work.
func TestKernelThreadNames(t *testing.T) {
	tooltest.Root(t)
	res := tooltest.JSON(t, Tool, []string{"--filter", "kernel"}, nil)
	long := 0
	for _, row := range res.Events {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", int(row.Num("pid"))))
		if err != nil {
			continue // it has exited
		}
		want, got := strings.TrimSuffix(string(b), "\n"), row.Str("comm")
		if len(got) > 15 {
			long++
		}
		if isWorker := strings.HasPrefix(want, "kworker/") && !strings.HasPrefix(want, "kworker/R-"); isWorker {
			want, _, _ = strings.Cut(strings.ReplaceAll(want, "+", "-"), "-")
			got, _, _ = strings.Cut(strings.ReplaceAll(got, "+", "-"), "-")
		}
		if got != want {
			t.Errorf("kernel thread %v is %q, want %q", row.Num("pid"), got, want)
		}
	}
	if all := longNames(t); long == 0 && all > 0 {
		t.Errorf("no row of a kernel thread has a name of more than 15 bytes, /proc has %d", all)
	}
}

// longNames counts the kernel threads whose name is longer than 15 bytes.
func longNames(t *testing.T) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, _ := os.ReadFile(name)
		if args, err := os.ReadFile(filepath.Dir(name) + "/cmdline"); err == nil && len(args) == 0 && len(b) > 16 {
			n++
		}
	}
	return n
}
