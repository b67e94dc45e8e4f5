package klockstat

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// needsTracepoint skips the test on kernels before 5.19.
func needsTracepoint(t *testing.T) {
	t.Helper()
	if !tooltest.HasTracepoint(t, "contention_begin") {
		t.Skip("this kernel has no tracepoint contention_begin")
	}
}

// TestNeeds checks that the tool names what a kernel before 5.19 lacks.
func TestNeeds(t *testing.T) {
	tooltest.Root(t)
	if !tooltest.HasTracepoint(t, "contention_begin") {
		tooltest.Fails(t, Tool, nil, 4, "contention_begin")
	}
}

// writevByte writes a byte with writev(2).
func writevByte(fd int, b *byte) error {
	vector := unix.Iovec{Base: b, Len: 1}
	if _, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vector)), 1); errno != 0 {
		return errno
	}
	return nil
}

// find returns the rows of waits for the mutex of a pipe: not those for the spin lock of its wait queue,
// except with PREEMPT_RT, where both are rt-mutexes.
func find(res *tooltest.Result) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool {
		return strings.HasSuffix(r.Str("caller"), "pipe_write") && strings.HasSuffix(r.Str("lock_type"), "mutex")
	})
}

// TestMutex waits a known number of times for at least a known time.
func TestMutex(t *testing.T) {
	tooltest.Root(t)
	needsTracepoint(t)
	const n = 5
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "contention=raw"}) {
		var least, most time.Duration
		args := append([]string{"--pid", strconv.Itoa(os.Getpid())}, attach...)
		res := tooltest.JSON(t, Tool, args, func() {
			begin := time.Now()
			for range n {
				least += tooltest.WaitForPipe(t).AtLeast
			}
			most = time.Since(begin)
		})
		rows := find(res)
		if len(rows) != 1 {
			t.Fatalf("rows %v, want one of pipe_write", res.Rows)
		}
		r := rows[0]
		if r.Num("count") != n || r.Str("lock_type") != mutexType(t) || r.Num("total_ns") < float64(least) || r.Num("total_ns") > float64(most) || r.Num("max_ns") > r.Num("total_ns") {
			t.Errorf("row %v, want %d waits of %v to %v", r, n, least, most)
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("%d lost: %v", lost, res.Summary)
		}
	}
}

// mutexType returns the type of mutexes: with PREEMPT_RT they are those of rt-mutexes.
func mutexType(t *testing.T) string {
	t.Helper()
	if text, err := os.ReadFile("/sys/kernel/realtime"); err == nil && strings.TrimSpace(string(text)) == "1" {
		return "rt-mutex"
	}
	return "mutex"
}

// TestRows checks the options that select and group rows.
func TestRows(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	needsTracepoint(t)
	res := tooltest.JSON(t, Tool, []string{"-P", "--by-lock", "-c", "pipe_", "--comm", "nobody"}, func() { tooltest.WaitForPipe(t) })
	if len(res.Rows) > 0 {
		t.Errorf("rows of other tasks: %v", res.Rows)
	}
	self := strconv.Itoa(os.Getpid())
	res = tooltest.JSON(t, Tool, []string{"--pid", self, "-P", "--by-lock"}, func() { tooltest.WaitForPipe(t); tooltest.WaitForPipe(t) })
	rows := find(res)
	if len(rows) != 2 || rows[0].Num("tid") == rows[1].Num("tid") && rows[0].Str("lock") == rows[1].Str("lock") || rows[0].Num("count") != 1 || rows[0].Num("pid") != float64(os.Getpid()) {
		t.Errorf("rows %v, want one per thread and lock", rows)
	}
	out := tooltest.Text(t, Tool, []string{"--pid", self, "-c", "nothing", "-S", "acq_max"}, func() { tooltest.WaitForPipe(t) })
	if lines := strings.Split(out, "\n"); len(lines) < 2 || strings.Contains(out, "pipe_write") || !strings.HasPrefix(lines[1], "Caller ") {
		t.Errorf("text %q", out)
	}
	tooltest.Fails(t, Tool, []string{"-S", "hld_max"}, 2, "hold times are not measured")
	tooltest.Fails(t, Tool, []string{"-S", "acq_max,hld_nothing,pid,tid"}, 2, "no such column")
	tooltest.Fails(t, Tool, []string{"-S", "pid"}, 2, "no row of this run has a value")
	reason := "no_such_lock"
	if !system.HasKernelData("/") {
		reason = "CONFIG_KALLSYMS_ALL"
	}
	tooltest.Fails(t, Tool, []string{"-L", "no_such_lock"}, 2, reason)
}

// symbols returns the functions of the column callers.
func symbols(r tooltest.Row) (names []string) {
	frames, _ := r["callers"].([]any)
	for _, f := range frames {
		name, _ := f.(map[string]any)["symbol"].(string)
		names = append(names, name)
	}
	return names
}

// TestStacks waits in two system calls: the function that acquires the lock is the same, those that call
// it differ.
func TestStacks(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	needsTracepoint(t)
	args := []string{"--pid", strconv.Itoa(os.Getpid()), "--filter", `caller endsWith "pipe_write"`}
	waits := func() {
		tooltest.WaitForPipe(t)
		tooltest.WaitForPipeIn(t, writevByte)
		tooltest.WaitForPipeIn(t, writevByte)
	}
	rows := find(tooltest.JSON(t, Tool, args, waits))
	if len(rows) != 1 || rows[0].Num("count") != 3 || rows[0].Has("callers") {
		t.Fatalf("rows %v, want one of 3 waits without callers", rows)
	}
	counts := map[string]float64{}
	for _, r := range find(tooltest.JSON(t, Tool, append(args, "-s", "16"), waits)) {
		names := symbols(r)
		isVector := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "writev") })
		switch {
		case isVector:
			counts["writev"] += r.Num("count")
		case slices.Contains(names, "vfs_write"):
			counts["write"] += r.Num("count")
		}
		if len(names) < 3 || len(names) > 15 || slices.Contains(names, r.Str("caller")) {
			t.Errorf("caller %s, callers %q", r.Str("caller"), names)
		}
	}
	if counts["write"] != 1 || counts["writev"] != 2 {
		t.Errorf("waits in the system calls: %v, want 1 and 2", counts)
	}
	out := tooltest.Text(t, Tool, append(args, "-s", "3", "-n", "1"), func() { tooltest.WaitForPipe(t) })
	if below := strings.Count(out, "\n    "); below != 2 || !strings.Contains(out, "\n    vfs_write\n") {
		t.Errorf("text %q, want two functions below the caller", out)
	}
	tooltest.Fails(t, Tool, []string{"-s", "17"}, 2, "17")
}

// capacity returns the number of addresses that the program holds.
func capacity(t *testing.T) int {
	t.Helper()
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	return int(spec.Variables["lock_code"].Size() / 8)
}

// TestLockCode checks that the functions of locks of this kernel are known as such, wherever the
// compiler has put them.
func TestLockCode(t *testing.T) {
	tooltest.Root(t)
	code, err := lockCode()
	if err != nil {
		t.Fatal(err)
	}
	if size := capacity(t); len(code) > size {
		t.Errorf("%d addresses, the program holds %d", len(code), size)
	}
	within := func(address uint64) bool {
		for i := 0; i < len(code); i += 2 {
			if address >= code[i] && address < code[i+1] {
				return true
			}
		}
		return false
	}
	for name, want := range map[string]bool{
		"rwsem_wake": true, "rwsem_mark_wake": true, "up_read": true, "up_write": true, "downgrade_write": true, "down_read": true,
		"mutex_lock": true, "mutex_unlock": true, "vfs_read": false, "vfs_write": false, "pipe_write": false, "do_sys_openat2": false,
	} {
		all, err := system.KernelCode("/", func(f string) bool { return f == name })
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if within(r.Start) != want {
				t.Errorf("%s at %#x is lock code: %v, want %v", name, r.Start, !want, want)
			}
		}
	}
}

// TestReleases makes threads wait for the spinlock of a read-write semaphore when they release it: the
// caller is the function that releases, not one of the semaphore.
func TestReleases(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	needsTracepoint(t)
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		tooltest.WaitForPipe(t)
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() {
				for range 500 {
					if page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
						page[0] = 1
						unix.Munmap(page)
					}
				}
			})
		}
		done.Wait()
	})
	for _, r := range res.Rows {
		name, _, _ := strings.Cut(r.Str("caller"), ".")
		if isLockCode(name) {
			t.Errorf("caller is a function of locks: %v", r)
		}
	}
	if len(find(res)) != 1 {
		t.Errorf("rows %v, want one of pipe_write", res.Rows)
	}
}
