package futexctn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const (
	private = 128 // FUTEX_PRIVATE_FLAG
	wake    = 1   // FUTEX_WAKE
	wait    = 0
	lockPI  = 6
	bitset  = 9
	unlock  = 7 // FUTEX_UNLOCK_PI
)

// lock is a futex at an address that no other code uses.
type lock struct{ word *uint32 }

func newLock(t *testing.T) lock {
	t.Helper()
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(page) })
	return lock{(*uint32)(unsafe.Pointer(&page[0]))}
}

func (l lock) String() string { return fmt.Sprintf("%#x", uintptr(unsafe.Pointer(l.word))) }

// futex calls futex(2) with this timeout, 0 for none.
func (l lock) futex(op, val uint32, timeout time.Duration) unix.Errno {
	ts := unix.NsecToTimespec(int64(timeout))
	var limit *unix.Timespec
	if timeout > 0 {
		limit = &ts
	}
	if op&^private == bitset && limit != nil { // an absolute time
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		ts = unix.NsecToTimespec(now.Nano() + int64(timeout))
	}
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(l.word)), uintptr(op), uintptr(val),
		uintptr(unsafe.Pointer(limit)), 0, math.MaxUint32)
	return errno
}

// waits are the waits for a lock by outcome.
type waits struct {
	count    int
	sum, min time.Duration
}

func find(res *tooltest.Result, l string) map[string]waits {
	all := map[string]waits{}
	for _, h := range res.Histograms {
		if key := h.Object("key"); key.Str("lock") == l {
			w := all[key.Str("outcome")]
			w.count += int(h.Num("count"))
			w.sum += time.Duration(h.Num("sum") * 1000)
			w.min = time.Duration(h.Num("min") * 1000)
			all[key.Str("outcome")] = w
		}
	}
	return all
}

func self(more ...string) []string {
	return append([]string{"--pid", strconv.Itoa(os.Getpid()), "--outcomes"}, more...)
}

// TestTimeouts waits a known number of times for a known time, with each call that waits.
func TestTimeouts(t *testing.T) {
	const n, each = 20, time.Millisecond
	const futexWaitv, futexWait = 449, 455
	absolute := func() unix.Timespec {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		return unix.NsecToTimespec(now.Nano() + int64(each))
	}
	const size32 = 2 // FUTEX2_SIZE_U32
	for name, call := range map[string]func(lock) unix.Errno{
		"wait":    func(l lock) unix.Errno { return l.futex(wait, 0, each) },
		"private": func(l lock) unix.Errno { return l.futex(wait|private, 0, each) },
		"bitset":  func(l lock) unix.Errno { return l.futex(bitset|private, 0, each) },
		"waitv": func(l lock) unix.Errno {
			waiter, limit := [3]uint64{0, uint64(uintptr(unsafe.Pointer(l.word))), size32}, absolute()
			_, _, errno := unix.Syscall6(futexWaitv, uintptr(unsafe.Pointer(&waiter)), 1, 0, uintptr(unsafe.Pointer(&limit)), unix.CLOCK_MONOTONIC, 0)
			return errno
		},
		"futex_wait": func(l lock) unix.Errno {
			limit := absolute()
			_, _, errno := unix.Syscall6(futexWait, uintptr(unsafe.Pointer(l.word)), 0, math.MaxUint32, size32, uintptr(unsafe.Pointer(&limit)), unix.CLOCK_MONOTONIC)
			return errno
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLock(t)
			if call(l) == unix.ENOSYS {
				t.Skip("this kernel does not have the system call")
			}
			for _, attach := range tooltest.ArgVariants([]string{"--hook", "enter=raw", "--hook", "exit=raw"}) {
				var took time.Duration
				interrupted := 0
				res := tooltest.JSON(t, Tool, append(self("-l", l.String()), attach...), func() {
					begin := time.Now()
					for timeouts := 0; timeouts < n; {
						switch errno := call(l); errno {
						case unix.ETIMEDOUT:
							timeouts++
						case unix.EINTR: // a signal of the Go runtime
							interrupted++
						default:
							t.Fatalf("call returned %v", errno)
						}
					}
					took = time.Since(begin)
				})
				all := find(res, l.String())
				// A slow machine can reach an absolute limit before the call begins to wait.
				isRelative := name != "waitv" && name != "bitset" && name != "futex_wait"
				skipped := int(res.Summary.Object("reasons").Num("program_busy"))
				if w := all["timeout"]; w.count > n || w.count+skipped < n || w.sum > took || isRelative && w.min < each/2 {
					t.Errorf("waits %v and %d skipped runs, want %d timeouts in %v", all, skipped, n, took)
				}
				delete(all, "timeout")
				// The kernel restarts calls after most signals of the Go runtime, so they do not return EINTR.
				if all["interrupted"].count+skipped < interrupted || len(all) > 1 || len(all) == 1 && all["interrupted"].count == 0 {
					t.Errorf("further waits %v, want at least %d interrupted", all, interrupted)
				}
				if lost := tooltest.Lost(res.Summary); lost != 0 {
					t.Errorf("%d lost: %v", lost, res.Summary)
				}
			}
		})
	}
}

// TestWoken wakes a thread that waits, and compares with the results of its calls.
func TestWoken(t *testing.T) {
	l := newLock(t)
	const n = 200
	results := map[unix.Errno]int{}
	res := tooltest.JSON(t, Tool, self("--perf-max-stack-depth", "50"), func() {
		var done sync.WaitGroup
		done.Go(func() {
			runtime.LockOSThread()
			for results[0] < n {
				results[l.futex(wait, 0, 0)]++
			}
		})
		over := make(chan bool)
		go func() { done.Wait(); close(over) }()
		for running := true; running; {
			select {
			case <-over:
				running = false
			default:
				l.futex(wake, 1, 0)
			}
		}
	})
	all := find(res, l.String())
	skipped := int(res.Summary.Object("reasons").Num("program_busy"))
	if woken := all["woken"].count; woken > results[0] || woken+skipped < results[0] || all["interrupted"].count < results[unix.EINTR] || all["timeout"].count != 0 {
		t.Errorf("waits %v, the calls returned %v", all, results)
	}
	for _, h := range res.Histograms {
		key := h.Object("key")
		if key.Str("lock") == l.String() && !strings.Contains(fmt.Sprint(key["user_stack"]), "futexctn.lock.futex") {
			t.Errorf("stack of %v", key)
		}
	}
}

// TestUnblocked checks that a call that does not wait is not a wait.
func TestUnblocked(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLock(t)
	const n = 50
	res := tooltest.JSON(t, Tool, self("-l", l.String(), "--summary"), func() {
		for range n {
			if errno := l.futex(wait, 1, 0); errno != unix.EAGAIN {
				t.Errorf("call returned %v", errno)
			}
		}
	})
	if got := res.Summary.Object("counters").Num("unblocked"); got != n || len(find(res, l.String())) > 0 {
		t.Errorf("%v calls did not wait, want %d; waits %v", got, n, res.Histograms)
	}
}

// TestPriorityInheritance waits for a lock with priority inheritance that another thread holds.
func TestPriorityInheritance(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLock(t)
	if l.futex(unlock, 0, 0) == unix.ENOSYS {
		t.Skip("this kernel has no futexes with priority inheritance")
	}
	const held = 20 * time.Millisecond
	holder := 0
	res := tooltest.JSON(t, Tool, self("-l", l.String(), "-s", "--holder"), func() {
		locked, waits := make(chan int), make(chan int)
		var done sync.WaitGroup
		done.Go(func() {
			runtime.LockOSThread()
			l.futex(lockPI, 0, 0)
			locked <- unix.Gettid()
			await(t, <-waits, unix.SYS_FUTEX)
			time.Sleep(held)
			l.futex(unlock, 0, 0)
		})
		holder = <-locked
		runtime.LockOSThread()
		waits <- unix.Gettid()
		for l.futex(lockPI, 0, 0) != 0 { // a signal can interrupt it
		}
		done.Wait()
		l.futex(unlock, 0, 0)
		runtime.UnlockOSThread()
	})
	// The first call acquired the free lock.
	w := find(res, l.String())["woken"]
	if w.count != 2 || w.sum < held {
		t.Errorf("waits %v, want 2, together at least %v", w, held)
	}
	if !slices.ContainsFunc(res.Histograms, func(h tooltest.Row) bool { return int(h.Object("key").Num("holder_tid")) == holder }) {
		t.Errorf("no histogram has the holder %d: %v", holder, res.Histograms)
	}
}

// await waits until a thread is blocked in a system call.
func await(t *testing.T, tid, nr int) {
	t.Helper()
	for want := fmt.Sprintf("%d 0x", nr); t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
		if err != nil {
			t.Error(err)
			return
		}
		if strings.HasPrefix(string(text), want) {
			return
		}
	}
}

const restarted = `
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int word;

static void *waits(void *arg)
{
	struct timespec limit = { 300, 0 };

	printf("%p %ld\n", (void *)&word, syscall(SYS_gettid));
	fflush(stdout);
	return (void *)syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit, 0, 0);
}

int main(void)
{
	pthread_t thread;
	char byte;

	pthread_create(&thread, 0, waits, 0);
	read(0, &byte, 1);
	syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
	pthread_join(thread, 0);
	return 0;
}
`

// TestRestarted stops and continues a process that waits with a timeout. The kernel then continues
// the wait with restart_syscall(2).
func TestRestarted(t *testing.T) {
	tooltest.AnyAttachType(t)
	path := tooltest.CompileC(t, restarted, "-O2", "-pthread")
	var address string
	res := tooltest.JSON(t, Tool, []string{"--outcomes"}, func() {
		cmd := exec.CommandContext(t.Context(), path)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		var tid int
		fmt.Sscan(line, &address, &tid)
		await(t, tid, unix.SYS_FUTEX)
		_ = cmd.Process.Signal(unix.SIGSTOP)
		for state := ""; state != "T" && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
			_, after, _ := strings.Cut(string(stat), ") ")
			state, _, _ = strings.Cut(after, " ")
		}
		_ = cmd.Process.Signal(unix.SIGCONT)
		await(t, tid, unix.SYS_RESTART_SYSCALL)
		in.Write([]byte{1})
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	all := find(res, address)
	if all["interrupted"].count != 1 || all["woken"].count != 1 || len(all) != 2 {
		t.Errorf("waits for %s: %v, want one interrupted and one woken", address, all)
	}
}

// TestCompat waits in a 32-bit process, by futex and futex_time64.
func TestCompat(t *testing.T) {
	tooltest.AnyAttachType(t)
	data := binary.LittleEndian.AppendUint32(nil, 0)   // the futex
	data = binary.LittleEndian.AppendUint32(data, 0)   // a time of 1 ms: 32-bit seconds
	data = binary.LittleEndian.AppendUint32(data, 1e6) // and nanoseconds
	data = binary.LittleEndian.AppendUint64(data, 0)   // the same with 64 bits
	data = binary.LittleEndian.AppendUint64(data, 1e6)
	var address uint32
	path := tooltest.I386(t, data, func(data uint32) []byte {
		address = data
		call := func(nr, timeout uint32) []byte {
			code := binary.LittleEndian.AppendUint32([]byte{0xbe}, data+timeout) // mov esi, timeout
			return append(code, tooltest.Call386(nr, data, wait, 0)...)
		}
		const futex, futexTime64 = 240, 422
		code := append(append(append(call(futex, 4), call(futex, 4)...), call(futexTime64, 12)...), tooltest.Exit386()...)
		for len(code)%4 > 0 {
			code = append(code, 0x90) // aligns the data, which follows
		}
		return code
	})
	res := tooltest.JSON(t, Tool, []string{"--outcomes", "-s"}, func() {
		if err := exec.Command(path).Run(); err != nil {
			t.Error(err)
		}
	})
	l := fmt.Sprintf("%#x", address)
	if w := find(res, l)["timeout"]; w.count != 3 || w.sum < 3*time.Millisecond {
		t.Errorf("waits of a 32-bit process for %s: %v, want 3 timeouts of 1 ms", l, w)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLock(t)
	out := tooltest.Text(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid()), "-l", l.String(), "-m"}, func() {
		l.futex(wait, 0, time.Millisecond)
	})
	if !strings.Contains(out, "msecs") || !strings.Contains(out, "lock = "+strings.TrimPrefix(l.String(), "0x")) {
		t.Errorf("text %q", out)
	}
	tooltest.Fails(t, Tool, []string{"-l", "x"}, 2, "is not an address")
}

// TestExported checks that a wait with a timeout is in the bucket of its duration, and has an exemplar.
// A signal of the Go runtime can end a wait early.
func TestExported(t *testing.T) {
	const timeout, waits = time.Second / 64, 4 // 2^-6 s
	l := newLock(t)
	var took time.Duration
	for _, args := range [][]string{nil, {"--summary"}} {
		early := uint64(0)
		run := tooltest.Export(t, Tool, append(args, "--pid", strconv.Itoa(os.Getpid()), "--lock", l.String()), func() {
			begin := time.Now()
			for range waits {
				if l.futex(wait|private, 0, timeout) != unix.ETIMEDOUT {
					early++
				}
			}
			took = time.Since(begin)
		})
		count := uint64(0)
		for _, h := range run.Histograms {
			h.CheckBuckets(t)
			h.CheckTask(t, os.Getpid())
			count += h.Exponential.Count
			for _, b := range h.Exponential.Classic(-20, 6) {
				if b.Le <= timeout.Seconds() && b.Count > early || b.Le >= took.Seconds() && b.Count != h.Exponential.Count {
					t.Errorf("%d waits up to %v s: all but %d took longer than %v, and %v in total", b.Count, b.Le, early, timeout, took)
				}
			}
		}
		if count != waits {
			t.Errorf("%d waits, want %d", count, waits)
		}
	}
}
