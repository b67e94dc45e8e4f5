package offcputime

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// needsTracepoint skips the test on kernels before 5.19.
func needsTracepoint(t *testing.T) {
	t.Helper()
	if !tooltest.HasTracepoint(t, "contention_begin") {
		t.Skip("this kernel has no tracepoint contention_begin")
	}
}

// on runs a function in a thread with this name, on the first CPU that this process may use, and returns
// its ID.
func on(t *testing.T, name string, run func()) (tid int, done <-chan struct{}) {
	t.Helper()
	started, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&append([]byte(name), 0)[0])), 0, 0, 0)
		var all, one unix.CPUSet
		unix.SchedGetaffinity(0, &all)
		for cpu := 0; one.Count() == 0; cpu++ {
			if all.IsSet(cpu) {
				one.Set(cpu)
			}
		}
		unix.SchedSetaffinity(0, &one)
		started <- unix.Gettid()
		run()
	}()
	return <-started, ended
}

// TestHolder has a thread write to a file all the time, which holds the lock of its inode, and another one
// on the same CPU write to it now and then: it has to wait whenever it preempts the first one in a write.
func TestHolder(t *testing.T) {
	tooltest.Root(t)
	needsTracepoint(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	var holder, waiter int
	args := []string{"--columns", "+holder,+holder_tid,+holder_pid,+holder_kernel_stack", "--pid", strconv.Itoa(os.Getpid())}
	contend := func() {
		stop := make(chan struct{})
		var holds, waits <-chan struct{}
		holder, holds = on(t, "holder", func() {
			for data := make([]byte, 4<<20); ; {
				select {
				case <-stop:
					return
				default:
					unix.Pwrite(fd, data, 0)
				}
			}
		})
		waiter, waits = on(t, "waiter", func() {
			for range 200 {
				unix.Pwrite(fd, []byte{0}, 0)
				ts := unix.NsecToTimespec(int64(time.Millisecond))
				unix.Nanosleep(&ts, nil)
			}
		})
		<-waits
		close(stop)
		<-holds
	}
	res := tooltest.JSON(t, Tool, args, contend)
	named, rows, released := 0, 0, 0
	for _, r := range res.Rows {
		if int(r.Num("tid")) != waiter {
			continue
		}
		rows++
		switch tid := int(r.Num("holder_tid")); {
		case tid == holder && r.Str("holder") == "holder" && int(r.Num("holder_pid")) == os.Getpid():
			named++
			if stack := strings.Join(r.Symbols("holder_kernel_stack"), " "); strings.Contains(stack, "up_write") || strings.Contains(stack, "rwsem_wake") {
				released++
			}
		case tid == 0 && r["holder"] != nil:
			t.Errorf("row %v", r)
		}
	}
	if named == 0 || released == 0 {
		t.Errorf("none of %d waits of thread %d names thread %d, with the stack in which it released the lock: %v", rows, waiter, holder, res.Rows)
	}
	text := tooltest.Text(t, Tool, append(args, "--folded"), contend)
	if !regexp.MustCompile(`(?m)^holder: holder;(.*;)?(up_write|rwsem_wake);.*;waiter;.*rwsem`).MatchString(text) {
		t.Error("no stack has the holder and its stack outside of the waiting thread:")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "holder: ") {
				t.Error(line)
			}
		}
	}
}

// TestMutexHolder checks that the holder of a mutex of the kernel is named: the mutex of a pipe, which a
// thread holds while it waits for a page of memory.
func TestMutexHolder(t *testing.T) {
	tooltest.Root(t)
	needsTracepoint(t)
	var w tooltest.PipeWait
	columns := "+holder_tid,+holder_pid,+holder_kernel_stack,+holder_user_stack"
	args := []string{"--columns", columns, "--pid", strconv.Itoa(os.Getpid())}
	res := tooltest.JSON(t, Tool, args, func() { w = tooltest.WaitForPipe(t) })
	var waited float64
	for _, r := range res.Rows {
		isMutex := strings.Contains(strings.Join(r.Symbols("kernel_stack"), " "), "mutex")
		if int(r.Num("tid")) != w.WaiterTID || !isMutex {
			continue
		}
		if r["holder_tid"] == nil { // the thread waited again, when the mutex had been released
			continue
		}
		if got := int(r.Num("holder_tid")); got != w.HolderTID || int(r.Num("holder_pid")) != os.Getpid() {
			t.Errorf("thread %d of process %v holds the mutex, want thread %d of process %d", got, r["holder_pid"], w.HolderTID, os.Getpid())
		}
		kernel := strings.Join(r.Symbols("holder_kernel_stack"), " ")
		if !r.HasSymbol("holder_user_stack", tooltest.HolderFunctionOfPipe) || !strings.Contains(kernel, "mutex_unlock") {
			t.Errorf("the stack of the holder lacks %s or mutex_unlock: %v", tooltest.HolderFunctionOfPipe, r)
		}
		waited += r.Num("total_ns")
	}
	if waited < float64(w.AtLeast) {
		t.Errorf("thread %d waited %.1f ms for the mutex, want at least %v: %v", w.WaiterTID, waited/1e6, w.AtLeast, res.Rows)
	}
}

// TestFutexHolder checks the holders of locks of user space, and their stacks when they release the locks. The
// map has whether waits with a known holder have its stack: it lacks if another thread, or a signal, ended the
// wait.
func TestFutexHolder(t *testing.T) {
	tooltest.Root(t)
	needsTracepoint(t)
	program := tooltest.CompileC(t, tooltest.LockHolder, "-pthread")
	stack, none := []bool{true}, []bool{false}
	for kind, want := range map[string][]bool{
		"mutex": stack, "pi": stack, "write": stack, "read": stack, "passed": none, "signal": {false, true}, "readers": nil, "cond": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			p := tooltest.StartLockHolder(t, program, kind)
			args := []string{"--columns", "+holder_tid,+holder_user_stack,+holder_kernel_stack", "--pid", strconv.Itoa(p.PID)}
			res := tooltest.JSON(t, Tool, args, p.Run)
			stacks := map[bool]bool{}
			for _, r := range res.Rows {
				hasStack := r["holder_user_stack"] != nil || r["holder_kernel_stack"] != nil
				if int(r.Num("tid")) != p.WaiterTID || r["holder_tid"] == nil && !hasStack {
					continue
				}
				isIn := r.HasSymbol("holder_user_stack", tooltest.HolderFunction) && r.HasSymbol("holder_kernel_stack", "futex")
				if int(r.Num("holder_tid")) != p.PID || hasStack && !isIn {
					t.Errorf("row %v: want holder %d, with a stack in %s or none", r, p.PID, tooltest.HolderFunction)
				}
				stacks[hasStack] = true
			}
			for _, has := range []bool{false, true} {
				if stacks[has] != slices.Contains(want, has) {
					t.Errorf("a wait for thread %d has a stack of it = %v: %v, want %v: %v", p.PID, has, stacks[has], !stacks[has], res.Rows)
				}
			}
		})
	}
}
