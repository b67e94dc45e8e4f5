package naptime

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
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
		long := unix.Timespec{Sec: 5000, Nsec: -1}
		unix.Nanosleep(&long, nil) // invalid
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
		"nanosleep 0", "nanosleep 1", "nanosleep 1234567", "clock_nanosleep 42", "nanosleep unknown", "nanosleep 4999999999999",
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
