package biotop

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// sum adds up a column over the rows of a disk and operation.
func sum(rows []tooltest.Row, disk, op, key string) (n float64) {
	for _, r := range rows {
		if r.Str("disk") == disk && r.Str("op") == op {
			n += r.Num(key)
		}
	}
	return n
}

func TestRequests(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "100ms"}, func() {
		tooltest.ReadBlocks(t, l.Dev, 300)
		tooltest.WriteBlocks(t, l.Dev, 200)
		for i := range 7 {
			span := [2]uint64{uint64(i) * tooltest.Stride, tooltest.BlockSize}
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, l.Dev.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span))); errno != 0 {
				t.Error(errno)
			}
		}
		if err := unix.Fsync(int(l.Dev.Fd())); err != nil {
			t.Error(err)
		}
	})
	for op, want := range map[string][2]float64{
		"R": {300, 300 * tooltest.BlockSize}, "W": {200, 200 * tooltest.BlockSize}, "D": {7, 7 * tooltest.BlockSize}, "F": {1, 0},
	} {
		if got := [2]float64{sum(res.Rows, l.Name, op, "ios"), sum(res.Rows, l.Name, op, "bytes")}; got != want {
			t.Errorf("%s: requests and bytes %v, want %v", op, got, want)
		}
	}
	for _, r := range res.Rows {
		mine := r.Num("pid") == float64(os.Getpid())
		if r.Str("disk") != l.Name || r.Str("op") != "F" && !mine || r.Num("errors") != 0 {
			t.Errorf("row %v", r)
		}
		if r.Num("total_ns") < r.Num("ios")*100 || r.Num("avg_ns") != float64(int64(r.Num("total_ns"))/int64(r.Num("ios"))) {
			t.Errorf("time of %v", r)
		}
	}
	counters := res.Summary.Object("counters")
	for _, name := range []string{"unmatched", "unended", "negative", "errors"} {
		if counters.Num(name) != 0 {
			t.Errorf("counters %v", counters)
		}
	}
}

// TestFilter checks that the filter tests the submitter, not the task at completion.
func TestFilter(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	load := func() { tooltest.ReadBlocks(t, l.Dev, 50) }
	if res := tooltest.JSONUndisturbed(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, load); sum(res.Rows, l.Name, "R", "ios") != 50 {
		t.Errorf("rows %v, want 50 reads", res.Rows)
	}
	if res := tooltest.JSONUndisturbed(t, Tool, []string{"-p", "1"}, load); sum(res.Rows, l.Name, "R", "ios") != 0 {
		t.Errorf("unexpected rows %v", res.Rows)
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-d", l.Name, "-s", "io", "60"}, func() { tooltest.ReadBlocks(t, l.Dev, 25) })
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || !strings.Contains(lines[0], " loadavg: ") || strings.Join(strings.Fields(lines[1]), " ") != "PID COMM D MAJ MIN DISK I/O Kbytes AVGms" {
		t.Fatalf("%q", out)
	}
	if f := strings.Fields(lines[2]); len(f) != 9 || f[2] != "R" || f[5] != l.Name || f[6] != "25" || f[7] != "100.00" {
		t.Errorf("%q", lines[2])
	}
}

func TestScreen(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	term := tooltest.StartTerminal(t, Tool, 100, 10, "-d", l.Name, "100ms")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				tooltest.ReadBlocks(t, l.Dev, 20)
			}
		}
	}()
	term.Await("row", func(lines []string) bool {
		return strings.Contains(lines[2], " R 7 ") && strings.Contains(lines[2], l.Name)
	})
	term.Type("q")
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	close(stop)
	<-done
}
