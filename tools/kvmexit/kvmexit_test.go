package kvmexit

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// writes is the number of writes to an I/O port, each of which is an exit.
const writes = 300

// halts runs guests, each in an own thread with that name, until they halt. It returns the threads.
func halts(t *testing.T, names ...string) (tids []int) {
	t.Helper()
	for i, name := range names {
		g := newGuest(t, uint16(writes*(i+1)))
		done := make(chan int)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread exits
			b, _ := unix.BytePtrFromString(name)
			unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
			if n := g.halt(t); n != writes*(i+1) {
				t.Errorf("%d writes, want %d", n, writes*(i+1))
			}
			done <- unix.Gettid()
		}()
		tids = append(tids, <-done)
	}
	return tids
}

// exits sums the exits of a thread, or of all, for any of these reasons.
func exits(rows []tooltest.Row, tid int, reasons ...string) (n float64) {
	for _, r := range rows {
		if tid != 0 && int(r.Num("tid")) != tid {
			continue
		}
		for _, reason := range reasons {
			if r.Str("reason") == reason {
				n += r.Num("count")
			}
		}
	}
	return n
}

// TestGuests counts the exits of two guests that write to an I/O port, by thread and together.
func TestGuests(t *testing.T) {
	tooltest.Root(t)
	newGuest(t, 1) // skips the test without KVM
	pid := strconv.Itoa(os.Getpid())
	for _, args := range [][]string{nil, {"-p", pid, "-a"}, {"-p", pid}, {"-p", pid, "-v", "7"}} {
		var tids []int
		res := tooltest.JSON(t, Tool, args, func() { tids = halts(t, "CPU 7/KVM", "CPU 12/KVM") })
		res.Rows = res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == os.Getpid() })
		io := []string{"IO_INSTRUCTION", "IOIO"}
		want := []float64{writes, 2 * writes}
		switch {
		case len(args) == 2:
			if n, hlt := exits(res.Rows, 0, io...), exits(res.Rows, 0, "HLT"); n != 3*writes || hlt != 2 || res.Rows[0].Has("tid") {
				t.Errorf("%q: %v writes, %v halts: %v", args, n, hlt, res.Rows)
			}
			continue
		case len(args) == 4:
			want[1] = 0
		}
		for i, tid := range tids {
			n, hlt := exits(res.Rows, tid, io...), exits(res.Rows, tid, "HLT")
			if n != want[i] || (hlt != 1) != (want[i] == 0) {
				t.Errorf("%q: thread %d: %v writes and %v halts, want %v: %v", args, tid, n, hlt, want[i], res.Rows)
			}
		}
		for _, r := range res.Rows {
			if v := r.Num("vcpu"); r.Str("comm") != fmt.Sprintf("CPU %v/KVM", v) {
				t.Errorf("row %v", r)
			}
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("%d lost", lost)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.Root(t)
	newGuest(t, 1)
	pid := strconv.Itoa(os.Getpid())
	for args, want := range map[string]string{
		"": "PID TID KVM_EXIT_REASON COUNT", "-p " + pid: "KVM_EXIT_REASON COUNT", "-a -p " + pid: "TID KVM_EXIT_REASON COUNT",
	} {
		out := tooltest.Text(t, Tool, strings.Fields(args), func() { halts(t, "guest") })
		_, table, _ := strings.Cut(out, "\n") // the first line is the time of the table
		header, rows, _ := strings.Cut(table, "\n")
		if strings.Join(strings.Fields(header), " ") != want || !strings.Contains(rows, strconv.Itoa(writes)) {
			t.Errorf("%q: %q, want header %q", args, out, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		arch         string
		reason, code uint32
		want         string
	}{
		{"amd64", 30, vmx, "IO_INSTRUCTION"}, {"amd64", 1<<31 | 33, vmx, "INVALID_STATE"}, {"amd64", 0x7b, svm, "IOIO"},
		{"amd64", 0x4e, svm, "EXCP_14"}, {"amd64", 0x400, svm, "NPF"}, {"amd64", 999, vmx, "0x3e7"},
		{"arm64", 0x24, trap, "DABT_LOW"}, {"arm64", 0, 0, "IRQ"}, {"arm64", 1, 1<<31 | trap, "WFx"},
	} {
		if got := reasonName(c.arch, c.reason, c.code); got != c.want {
			t.Errorf("reason %#x, code %#x of %s is %s, want %s", c.reason, c.code, c.arch, got, c.want)
		}
	}
}
