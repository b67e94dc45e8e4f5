package naptime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
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

// onThread runs the tool for one thread, in which f sleeps.
func onThread(t *testing.T, f func()) *tooltest.Result {
	t.Helper()
	begin, done := make(chan bool), make(chan bool)
	tid := make(chan int)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-begin
		f()
	}()
	return tooltest.JSON(t, Tool, []string{"--tid", strconv.Itoa(<-tid)}, func() {
		close(begin)
		<-done
	})
}

func TestRelative(t *testing.T) {
	res := onThread(t, func() {
		for _, ns := range []int64{0, 1, 1_234_567} {
			ts := unix.Timespec{Nsec: ns}
			unix.Nanosleep(&ts, nil)
		}
		ts := unix.Timespec{Nsec: 42}
		unix.ClockNanosleep(unix.CLOCK_REALTIME, 0, &ts, nil)
		unix.Syscall(nanosleep, 16, 0, 0) // an address that is not mapped
		for _, invalid := range []unix.Timespec{{Sec: 5000, Nsec: -1}, {Nsec: 1e9}, {Sec: -1}} {
			if err := unix.Nanosleep(&invalid, nil); err != unix.EINVAL {
				t.Errorf("nanosleep %v: %v", invalid, err)
			}
		}
		one := unix.Timespec{Nsec: 1}
		if err := unix.ClockNanosleep(unix.CLOCK_THREAD_CPUTIME_ID, 0, &one, nil); err == nil {
			t.Error("slept by the CPU time of the thread")
		}
	})
	var got []string
	for _, r := range res.Events {
		request := "unknown"
		if r.Has("request_ns") {
			request = strconv.Itoa(int(r.Num("request_ns")))
		}
		got = append(got, r.Str("syscall")+" "+request)
		if int(r.Num("pid")) != os.Getpid() || int(r.Num("ppid")) != os.Getppid() || r.Str("parent_comm") != parent(t) || r["absolute"] != false {
			t.Errorf("row: %v", r)
		}
	}
	want := []string{
		"nanosleep 0", "nanosleep 1", "nanosleep 1234567", "clock_nanosleep 42", "nanosleep unknown",
		"nanosleep unknown", "nanosleep unknown", "nanosleep unknown", "clock_nanosleep unknown",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

const nanosleep = unix.SYS_NANOSLEEP

func parent(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestAbsolute sleeps until 20 ms after a time that is read before.
func TestAbsolute(t *testing.T) {
	const ms = 1_000_000
	until := func(clock int32, ns int64) unix.Timespec {
		var now unix.Timespec
		if err := unix.ClockGettime(clock, &now); err != nil {
			t.Error(err)
		}
		return unix.NsecToTimespec(now.Nano() + ns)
	}
	res := onThread(t, func() {
		for _, clock := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_REALTIME} {
			end := until(clock, 20*ms)
			unix.ClockNanosleep(clock, unix.TIMER_ABSTIME, &end, nil)
		}
		past := until(unix.CLOCK_MONOTONIC, -ms)
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &past, nil)
	})
	if len(res.Events) != 4 {
		t.Fatalf("%d rows, want 4: %v", len(res.Events), res.Events)
	}
	for i, r := range res.Events {
		ns := r.Num("request_ns")
		ok := r.Has("request_ns")
		switch i {
		case 0, 1:
			ok = ok && ns <= 20*ms
		case 2:
			ok = !ok
		case 3:
			ok = ok && ns == 0
		}
		if !ok || r["absolute"] != true {
			t.Errorf("row %d: %v", i, r)
		}
	}
}

// TestHuge begins sleeps that the kernel limits to 292 years, and interrupts them.
func TestHuge(t *testing.T) {
	for _, seconds := range []int64{9223372035, 9223372036, 1 << 40, math.MaxInt64} {
		res := onThread(t, func() {
			tid, done := unix.Gettid(), make(chan bool)
			go func() { // SIGURG interrupts a sleep, and has no other effect in a Go program
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Millisecond):
						unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
					}
				}
			}()
			ts := unix.Timespec{Sec: seconds}
			if _, _, errno := unix.Syscall(nanosleep, uintptr(unsafe.Pointer(&ts)), 0, 0); errno != unix.EINTR {
				t.Errorf("sleep of %d s: %v", seconds, errno)
			}
			close(done)
		})
		want := float64(seconds) * 1e9
		if seconds >= math.MaxInt64/1_000_000_000 {
			want = math.MaxInt64
		}
		if len(res.Events) != 1 || res.Events[0].Num("request_ns") != want {
			t.Errorf("%d s: rows %v, want one with %.0f", seconds, res.Events, want)
		}
	}
}

// TestTimeNamespace sleeps in a process whose clocks are ahead of those of this one.
func TestTimeNamespace(t *testing.T) {
	const offsets = "monotonic 1000000 500000000\nboottime 3000000 0\n"
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=1")
	cmd.Stderr = os.Stderr
	lacking := ""
	res := tooltest.JSON(t, Tool, []string{"--filter", fmt.Sprintf("ppid == %d and absolute", os.Getpid())}, func() {
		runtime.LockOSThread() // never unlocked, so the thread exits with the goroutine
		err := unix.Unshare(unix.CLONE_NEWTIME)
		if err == unix.EINVAL {
			lacking = "this kernel has no time namespaces (CONFIG_TIME_NS)"
			return
		}
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("/proc/%d/timens_offsets", unix.Gettid()), []byte(offsets), 0)
		}
		if err != nil {
			t.Error(err)
			return
		}
		switch err := cmd.Run(); {
		case errors.Is(err, unix.EINVAL):
			lacking = "this kernel does not create a process with vfork in another time namespace (before Linux 6.0)"
		case err != nil:
			t.Error(err)
		}
	})
	if lacking != "" {
		t.Skip(lacking)
	}
	if len(res.Events) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(res.Events), res.Events)
	}
	for _, r := range res.Events {
		if ns := r.Num("request_ns"); !r.Has("request_ns") || ns <= 0 || ns > float64(ahead) {
			t.Errorf("row %v, want at most %d ns", r, ahead)
		}
	}
}

// helper tells a child of the test to sleep until a given time.
const helper = "CORESCOPE_SLEEP"

// ahead is so long that it has not passed when the child begins to sleep.
const ahead = int64(time.Hour)

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	for _, clock := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME} {
		var now unix.Timespec
		// A raw call: its result does not depend on the vDSO.
		unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&now)), 0)
		if now.Sec < 1000000 {
			fmt.Fprintln(os.Stderr, "clock", clock, "is", now.Sec, "s: not in the time namespace")
			os.Exit(1)
		}
		until := unix.NsecToTimespec(now.Nano() + ahead)
		tid := make(chan int)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			unix.ClockNanosleep(clock, unix.TIMER_ABSTIME, &until, nil)
		}()
		for file := fmt.Sprintf("/proc/self/task/%d/syscall", <-tid); ; time.Sleep(time.Millisecond) {
			if b, err := os.ReadFile(file); err != nil || strings.HasPrefix(string(b), strconv.Itoa(unix.SYS_CLOCK_NANOSLEEP)+" ") {
				break
			}
		}
	}
}

func TestCompat(t *testing.T) {
	var data []byte
	data = binary.LittleEndian.AppendUint32(data, 0) // 1234 ns, 32-bit
	data = binary.LittleEndian.AppendUint32(data, 1234)
	data = binary.LittleEndian.AppendUint64(data, 0) // 5678 ns, 64-bit
	data = binary.LittleEndian.AppendUint64(data, 5678)
	prog := tooltest.I386(t, data, func(at uint32) []byte {
		return slices.Concat(tooltest.Call386(162, at, 0), sleepUntil(267, at), sleepUntil(407, at+8), tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("syscall"), " ", r.Num("request_ns")))
	}
	if want := []string{"nanosleep 1234", "clock_nanosleep 1234", "clock_nanosleep_time64 5678"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// sleepUntil returns the code of clock_nanosleep(CLOCK_MONOTONIC, 0, at, NULL).
func sleepUntil(nr, at uint32) []byte {
	return append([]byte{0x31, 0xf6}, tooltest.Call386(nr, unix.CLOCK_MONOTONIC, 0, at)...) // xor esi, esi
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	text := tooltest.Text(t, Tool, []string{"--comm", "napper"}, func() {
		done := make(chan bool)
		go func() {
			defer close(done)
			runtime.LockOSThread()
			name := []byte("napper\x00")
			unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
			unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil)
		}()
		<-done
	})
	lines := strings.Split(text, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PPID PCOMM PID COMM SECONDS" {
		t.Errorf("header is %q", got)
	}
	if len(lines) != 3 || !strings.HasSuffix(lines[1], "0.002000") {
		t.Errorf("rows: %q", lines[1:])
	}
}
