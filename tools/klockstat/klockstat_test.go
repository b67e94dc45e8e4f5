package klockstat

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
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

// faultingPage is a page whose first access blocks until it is filled.
type faultingPage struct {
	memory []byte
	uffd   int
}

// Requests of userfaultfd(2), from linux/userfaultfd.h.
const (
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioZeroPage = 0xc020aa04
)

func newFaultingPage(t *testing.T) *faultingPage {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno == unix.ENOSYS {
		t.Skip("this kernel has no userfaultfd")
	}
	if errno != 0 {
		t.Fatal(errno)
	}
	p := &faultingPage{uffd: int(fd)}
	t.Cleanup(func() { unix.Close(p.uffd) })
	var err error
	p.memory, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(p.memory) })
	const api, missing = 0xaa, 1
	p.ioctl(t, uffdioAPI, [4]uint64{api})
	p.ioctl(t, uffdioRegister, [4]uint64{p.start(), uint64(len(p.memory)), missing})
	return p
}

func (p *faultingPage) start() uint64 { return uint64(uintptr(unsafe.Pointer(&p.memory[0]))) }

func (p *faultingPage) ioctl(t *testing.T, request uintptr, arg [4]uint64) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.uffd), request, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		t.Fatalf("ioctl %#x: %v", request, errno)
	}
}

// await returns once a thread is blocked at the page.
func (p *faultingPage) await(t *testing.T) {
	t.Helper()
	message := make([]byte, 32)
	if _, err := unix.Read(p.uffd, message); err != nil {
		t.Fatal(err)
	}
	if at := binary.NativeEndian.Uint64(message[16:]); at != p.start() {
		t.Fatalf("fault at %#x, want %#x", at, p.start())
	}
}

func (p *faultingPage) fill(t *testing.T) {
	t.Helper()
	p.ioctl(t, uffdioZeroPage, [4]uint64{p.start(), uint64(len(p.memory))})
}

// contend makes a thread wait for the mutex of a pipe, once. Another thread holds it: it writes from
// a page that is not there. contend returns how long it knows that the thread waited at least.
func contend(t *testing.T) time.Duration {
	t.Helper()
	p := newFaultingPage(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	write := func(b []byte, tid chan int, done chan error) {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		n, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(pipe[1]), uintptr(unsafe.Pointer(&b[0])), 1)
		if n != 1 {
			done <- fmt.Errorf("write: %w", errno)
		}
		done <- nil
	}
	tid, done := make(chan int, 2), make(chan error, 4)
	go write(p.memory, tid, done)
	<-tid
	p.await(t)
	go write([]byte{1}, tid, done)
	waiter := <-tid
	for state := ""; state != "D" && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", waiter))
		_, after, _ := strings.Cut(string(stat), ") ")
		state, _, _ = strings.Cut(after, " ")
	}
	begin := time.Now()
	time.Sleep(10 * time.Millisecond)
	waited := time.Since(begin)
	p.fill(t)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return waited
}

// find returns the rows of waits for the mutex of a pipe.
func find(res *tooltest.Result) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool { return strings.HasSuffix(r.Str("caller"), "pipe_write") })
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
				least += contend(t)
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
	res := tooltest.JSON(t, Tool, []string{"-P", "--by-lock", "-c", "pipe_", "--comm", "nobody"}, func() { contend(t) })
	if len(res.Rows) > 0 {
		t.Errorf("rows of other tasks: %v", res.Rows)
	}
	self := strconv.Itoa(os.Getpid())
	res = tooltest.JSON(t, Tool, []string{"--pid", self, "-P", "--by-lock"}, func() { contend(t); contend(t) })
	rows := find(res)
	if len(rows) != 2 || rows[0].Num("tid") == rows[1].Num("tid") && rows[0].Str("lock") == rows[1].Str("lock") || rows[0].Num("count") != 1 || rows[0].Num("pid") != float64(os.Getpid()) {
		t.Errorf("rows %v, want one per thread and lock", rows)
	}
	out := tooltest.Text(t, Tool, []string{"--pid", self, "-c", "nothing", "-S", "acq_max"}, func() { contend(t) })
	if lines := strings.Split(out, "\n"); len(lines) < 2 || strings.Contains(out, "pipe_write") || !strings.HasPrefix(lines[1], "Caller ") {
		t.Errorf("text %q", out)
	}
	tooltest.Fails(t, Tool, []string{"-S", "hld_max"}, 2, "hold times are not measured")
	tooltest.Fails(t, Tool, []string{"-S", "acq_max,hld_nothing,pid,tid"}, 2, "no such column")
	reason := "no_such_lock"
	if !system.HasKernelData("/") {
		reason = "CONFIG_KALLSYMS_ALL"
	}
	tooltest.Fails(t, Tool, []string{"-L", "no_such_lock"}, 2, reason)
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
		contend(t)
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
