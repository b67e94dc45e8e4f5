package biostacks

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// histsOf returns the histograms of this process whose stacks contain one of the symbols.
func histsOf(res *tooltest.Result, disk string, symbols ...string) (all []tooltest.Row) {
	for _, h := range res.Histograms {
		key := h.Object("key")
		if key.Num("pid") != float64(os.Getpid()) || key.Str("disk") != disk {
			continue
		}
		for _, symbol := range symbols {
			if strings.Contains(fmt.Sprint(key["kernel_stack"]), symbol) {
				all = append(all, h)
				break
			}
		}
	}
	return all
}

func check(t *testing.T, what string, hists []tooltest.Row, n int, wall time.Duration) {
	t.Helper()
	var count, sum float64
	for _, h := range hists {
		count += h.Num("count")
		sum += h.Num("sum")
		if h.Num("min") <= 0 {
			t.Errorf("%s have no latency: %v", what, h)
		}
	}
	if most := float64(wall) / float64(time.Microsecond); count != float64(n) || sum > most {
		t.Errorf("%s: %v in %.0f us, want %d in %.0f us at the most", what, count, sum, n, most)
	}
}

func timed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// buffered reads n blocks through the page cache without read-ahead, after it has removed the
// blocks of an earlier call from the cache.
func buffered(t *testing.T, path string, n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	tooltest.ReadBlocks(t, f, n)
}

// TestStacks checks that two kinds of reads, each of a known number, are grouped by their stacks.
func TestStacks(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	const direct, cached = 300, 100
	var directTime, cachedTime time.Duration
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name}, func() {
		directTime = timed(func() { tooltest.ReadBlocks(t, l.Dev, direct) })
		cachedTime = timed(func() { buffered(t, l.Path, cached) })
	})
	check(t, "direct reads", histsOf(res, l.Name, "blkdev_direct_IO"), direct, directTime)
	check(t, "reads of the page cache", histsOf(res, l.Name, "filemap_", "generic_file_buffered_read"), cached, cachedTime)
	for name, n := range res.Summary.Object("counters") {
		if n != 0.0 && name != "in_flight" {
			t.Errorf("counter %s is %v", name, n)
		}
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%v lost: %v", lost, res.Summary)
	}
}

// TestFilters checks that only I/O of the selected disk and process is shown, each in the report of
// its interval.
func TestFilters(t *testing.T) {
	l, other := tooltest.NewLoop(t, 0), tooltest.NewLoop(t, 0)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"-d", other.Path}, 7},
		{[]string{"-d", l.Name, "--pid", fmt.Sprint(os.Getpid())}, 50},
		{[]string{"-d", l.Name, "--pid", "1"}, 0},
		{[]string{"-d", l.Name, "--interval", "10ms"}, 50},
	} {
		res := tooltest.JSONUndisturbed(t, Tool, c.args, func() {
			tooltest.ReadBlocks(t, l.Dev, 50)
			tooltest.ReadBlocks(t, other.Dev, 7)
		})
		count := 0.0
		for _, h := range res.Histograms {
			count += h.Num("count")
			if len(h.Object("key")) != 4 {
				t.Errorf("%q: key is %v", c.args, h.Object("key"))
			}
		}
		if count != float64(c.want) {
			t.Errorf("%q: %v reads, want %d", c.args, count, c.want)
		}
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-m", "-d", l.Name}, func() { tooltest.ReadBlocks(t, l.Dev, 20) })
	title := fmt.Sprintf(" %d %s\n    ", os.Getpid(), l.Name)
	if !strings.Contains(out, title) || !strings.Contains(out, "\n    blkdev_read_iter\n") || !strings.Contains(out, "msecs") {
		t.Errorf("text is %s", out)
	}
}

// TestExported checks that the programs load with exponential slots, which need more stack.
func TestExported(t *testing.T) {
	run := tooltest.Export(t, Tool, nil, func() { unix.Sync() })
	for _, h := range run.Histograms {
		h.CheckBuckets(t)
		if len(h.Exemplars) != 0 {
			t.Errorf("exemplars %v: requests complete in another task", h.Exemplars)
		}
	}
}
