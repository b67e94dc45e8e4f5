package wqlat

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// fsyncs syncs a file n times with asynchronous I/O, and returns how long that took. Each queues one
// work.
func fsyncs(t *testing.T, n int) time.Duration {
	t.Helper()
	fd, err := unix.MemfdCreate("file", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	begin := time.Now()
	if err := tooltest.AIOFsync(fd, n); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// find returns the histogram of the works of fsyncs.
func find(t *testing.T, res *tooltest.Result) tooltest.Row {
	t.Helper()
	for _, h := range res.Histograms {
		if h.Object("key").Str("function") == "aio_fsync_work" {
			return h
		}
	}
	t.Fatalf("no histogram of aio_fsync_work: %v", res.Histograms)
	return nil
}

// TestWorks queues a known number of works.
func TestWorks(t *testing.T) {
	const n = 500
	for _, attach := range tooltest.ArgVariants([]string{"--hook", "queue=raw", "--hook", "start=raw"}) {
		var took time.Duration
		res := tooltest.JSON(t, Tool, append(append(self(), "-W", "--functions"), attach...), func() { took = fsyncs(t, n) })
		h := find(t, res)
		us := float64(took) / float64(time.Microsecond)
		if h.Num("count") != n || h.Object("key").Str("workqueue") != "events" || h.Num("min") <= 0 || h.Num("sum") > us {
			t.Errorf("%d works in %v us: %v", n, us, h)
		}
		if lost := tooltest.Lost(res.Summary); lost != 0 {
			t.Errorf("%d lost: %v", lost, res.Summary)
		}
	}
}

func TestWorkqueue(t *testing.T) {
	tooltest.AnyAttachType(t)
	const n = 100
	res := tooltest.JSON(t, Tool, append(self(), "-w", "events", "--functions", "-N"), func() { fsyncs(t, n) })
	if h := find(t, res); h.Num("count") != n || h.Str("unit") != "nsecs" {
		t.Errorf("%v works of workqueue events, want %d", h, n)
	}
	for _, other := range []string{"event", "eventsx"} {
		res := tooltest.JSON(t, Tool, append(self(), "-w", other), func() { fsyncs(t, n) })
		if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 0 {
			t.Errorf("works of workqueue %s: %v", other, res.Histograms)
		}
	}
}

// TestTasks checks that the works of another process are not shown.
func TestTasks(t *testing.T) {
	tooltest.AnyAttachType(t)
	res := tooltest.JSON(t, Tool, []string{"--pid", "2", "--functions"}, func() { fsyncs(t, 100) })
	for _, h := range res.Histograms {
		if h.Object("key").Str("function") == "aio_fsync_work" {
			t.Errorf("works of this process: %v", h)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, append(self(), "-W"), func() { fsyncs(t, 20) })
	if !strings.Contains(out, "\nworkqueue = events\n") || !strings.Contains(out, "usecs") {
		t.Errorf("text %q", out)
	}
}

// TestCancelled runs the programs with BPF_PROG_TEST_RUN for a work that is queued twice, because it was
// cancelled, and begins once.
func TestCancelled(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tooltest.LoadPrograms(t, loadBpf, map[string]any{"hist_plain": true}, "queue__raw", "start__raw")
	const cpu, workqueue, work = 0, 0x1000, 0x2000 // addresses that are not mapped
	p.Run("queue__raw", cpu, workqueue, work)
	begin := time.Now()
	time.Sleep(20 * time.Millisecond)
	slept := time.Since(begin)
	p.Run("queue__raw", cpu, workqueue, work)
	p.Run("start__raw", work)
	p.Run("start__raw", work) // was queued before the tool started
	waited := time.Since(begin) - slept
	var slots []struct {
		Slots [976]struct{ Count, Sum, Min, Max uint64 }
	}
	if err := p.Maps["hists_plain"].Lookup(uint32(0), &slots); err != nil {
		t.Fatal(err)
	}
	count, sum := uint64(0), time.Duration(0)
	for _, cpu := range slots {
		for _, slot := range cpu.Slots {
			count, sum = count+slot.Count, sum+time.Duration(slot.Sum)
		}
	}
	if count != 1 || sum <= 0 || sum > waited {
		t.Errorf("%d works that waited %v, want 1 that waited at most %v", count, sum, waited)
	}
	if n := p.Counter("no_queue"); n != 1 {
		t.Errorf("%d works without queueing, want 1", n)
	}
}
