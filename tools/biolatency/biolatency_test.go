package biolatency

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func pid() string { return strconv.Itoa(os.Getpid()) }

// find returns the histogram with the key, or fails the test.
func find(t testing.TB, res *tooltest.Result, key map[string]string) tooltest.Row {
	t.Helper()
	for _, h := range res.Histograms {
		if matches(h.Object("key"), key) {
			return h
		}
	}
	t.Fatalf("no histogram of %v in %v", key, keys(res))
	return nil
}

func matches(key tooltest.Row, want map[string]string) bool {
	for name, text := range want {
		if key.Str(name) != text {
			return false
		}
	}
	return true
}

func keys(res *tooltest.Result) (all []string) {
	for _, h := range res.Histograms {
		var parts []string
		for name := range h.Object("key") {
			parts = append(parts, name+"="+h.Object("key").Str(name))
		}
		all = append(all, strings.Join(parts, " ")+" count="+strconv.Itoa(int(h.Num("count"))))
	}
	return all
}

// checkCounters compares counters. Those not named must be 0, except in_flight, because other
// processes may use the disks of the machine.
func checkCounters(t testing.TB, res *tooltest.Result, want map[string]int) {
	t.Helper()
	for name := range res.Summary.Object("counters") {
		got := int(res.Summary.Object("counters").Num(name))
		if got != want[name] && name != "in_flight" {
			t.Errorf("counter %s is %d, want %d", name, got, want[name])
		}
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%v lost: %v", lost, res.Summary)
	}
}

// readFlags are the flags of a direct read. submit_bio_wait() sets REQ_SYNC, and newer kernels use
// it; 5.10 does not.
func readFlags(res *tooltest.Result) string {
	for _, h := range res.Histograms {
		if h.Object("key").Str("flags") == "Read" {
			return "Read"
		}
	}
	return "Sync-Read"
}

func TestReads(t *testing.T) {
	l := newLoop(t, 0)
	const n = 500
	var wall, longest time.Duration
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-D", "--operations", "-F", "--pid", pid(), "-d", l.path}, func() {
		for range n {
			begin := time.Now()
			readBlocks(t, l.dev, 1)
			took := time.Since(begin)
			wall, longest = wall+took, max(longest, took)
		}
	})
	if len(res.Histograms) != 1 {
		t.Fatalf("histograms: %v", keys(res))
	}
	h := find(t, res, map[string]string{"disk": l.name, "operation": "read", "flags": readFlags(res)})
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	if h.Num("count") != n || h.Num("sum") > us(wall) || h.Num("max") > us(longest) || h.Num("min") <= 0 {
		t.Errorf("%d reads took %v, the longest %v: %v", n, wall, longest, h)
	}
	checkCounters(t, res, nil)
}

// TestOperations issues each kind of I/O a known number of times.
func TestOperations(t *testing.T) {
	l := newLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"--operations", "-d", l.name}, func() {
		readBlocks(t, l.dev, 11)
		writeBlocks(t, l.dev, 12)
		for range 13 {
			if err := unix.Fsync(int(l.dev.Fd())); err != nil {
				t.Error(err)
			}
		}
		for i := range 14 {
			l.discard(t, uint64(i)*stride, blockSize)
		}
		for i := range 15 {
			if err := unix.Fallocate(int(l.dev.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(i)*stride, blockSize); err != nil {
				t.Error(err)
			}
		}
	})
	for op, n := range map[string]float64{"read": 11, "write": 12, "flush": 13, "discard": 14, "write_zeroes": 15} {
		if h := find(t, res, map[string]string{"operation": op}); h.Num("count") != n {
			t.Errorf("%v of %s, want %v", h.Num("count"), op, n)
		}
	}
	checkCounters(t, res, nil)
}

// runs returns the number of runs of the hook's programs.
func runs(res *tooltest.Result, hook string) (n int) {
	programs, _ := res.Summary.Object("stats")["programs"].([]any)
	for _, p := range programs {
		if row := tooltest.Row(p.(map[string]any)); strings.HasPrefix(row.Str("program"), hook+"__") {
			n += int(row.Num("runs"))
		}
	}
	return n
}

// TestStages compares the three times of the same I/O, with and without a scheduler queue. Without
// one, some kernels issue a request directly, and others insert it first.
func TestStages(t *testing.T) {
	tooltest.OnHooks(t, "insert", "issue", "complete")
	for _, scheduler := range []string{"mq-deadline", "none"} {
		t.Run(scheduler, func(t *testing.T) {
			l := scheduled(t, scheduler)
			const n = 200
			res := tooltest.JSONUndisturbed(t, Tool, []string{"--stages", "-d", l.name, "--operations", "--stats"}, func() { writeBlocks(t, l.dev, n) })
			sums := map[string]float64{}
			for _, stage := range []string{"queue", "device", "total"} {
				h := find(t, res, map[string]string{"stage": stage, "operation": "write"})
				if h.Num("count") != n {
					t.Errorf("%v times of %s, want %d", h.Num("count"), stage, n)
				}
				sums[stage] = h.Num("sum")
			}
			if got, want := sums["queue"]+sums["device"], sums["total"]; math.Abs(got-want) > want*1e-9 {
				t.Errorf("queue and device add up to %v, total is %v", got, want)
			}
			if inserts := runs(res, "insert"); sums["queue"] == 0 && scheduler != "none" || sums["queue"] > 0 && inserts < n {
				t.Errorf("queue time is %v for %d insertions", sums["queue"], inserts)
			}
		})
	}
}

// TestQueued compares -Q with the total of --stages for the same I/O in two runs.
func TestQueued(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := scheduled(t, "mq-deadline")
	const n = 100
	var queued *tooltest.Result
	stages := tooltest.JSONUndisturbed(t, Tool, []string{"--stages", "-d", l.name}, func() {
		queued = tooltest.JSON(t, Tool, []string{"-Q", "-d", l.name}, func() { readBlocks(t, l.dev, n) })
	})
	total := find(t, stages, map[string]string{"stage": "total"})
	device := find(t, stages, map[string]string{"stage": "device"})
	h := find(t, queued, nil)
	if h.Num("count") != n || total.Num("count") != n || h.Num("mean") <= device.Num("mean") {
		t.Errorf("-Q has %v of mean %v; total %v of %v, device %v", h.Num("count"), h.Num("mean"), total.Num("count"), total.Num("mean"), device.Num("mean"))
	}
}

// TestReports sums reports during I/O: each request is in exactly one.
func TestReports(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	const n = 50
	rounds := 0
	before := tooltest.HiddenRuns()
	res := tooltest.JSONReports(t, Tool, []string{"-D", "-d", l.name, "20ms"}, func(reports func() int) {
		for reports() < 4 && t.Context().Err() == nil {
			writeBlocks(t, l.dev, n)
			rounds++
		}
	})
	var sum float64
	for _, h := range res.Histograms {
		sum += h.Num("count")
	}
	hidden := tooltest.HiddenRuns() - before
	if sum > float64(rounds*n) || sum < float64(rounds*n-hidden) || len(res.Histograms) < 3 {
		t.Errorf("%v requests in %d reports, want %d, at most %d of them missing: %v", sum, len(res.Histograms), rounds*n, hidden, res.Summary)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	text := tooltest.TextUndisturbed(t, Tool, []string{"-D", "-F", "-m", "-d", l.name}, func() { writeBlocks(t, l.dev, 20) })
	for _, want := range []string{
		"\ndisk = " + l.name + "\tflags = Idle-Sync-Write\n",
		"     msecs               : count    distribution\n",
		"count 20, mean ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("text lacks %q: %s", want, text)
		}
	}
}

func TestCSV(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	text := tooltest.TextUndisturbed(t, Tool, []string{"-D", "--operations", "--output", "csv", "-d", l.name}, func() { writeBlocks(t, l.dev, 20) })
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if lines[0] != "time,disk,operation,unit,lo,hi,count" {
		t.Errorf("header is %q", lines[0])
	}
	var sum int
	for _, line := range lines[1:] {
		f := strings.Split(line, ",")
		if len(f) != 7 || f[1] != l.name || f[2] != "write" || f[3] != "usecs" {
			t.Fatalf("line %q", line)
		}
		n, err := strconv.Atoi(f[6])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != 20 {
		t.Errorf("lines add up to %d, want 20", sum)
	}
}

// TestHooks forces each attach type in turn; all must give the same result.
func TestHooks(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := scheduled(t, "mq-deadline")
	z := zram(t)
	const n = 50
	kinds := []string{"oldbtf", "oldraw"}
	var start *btf.Typedef
	if kernelTypes(t).TypeByName("btf_trace_block_io_start", &start) == nil {
		kinds = append(kinds, "btf", "raw")
	}
	for _, kind := range kinds {
		args := []string{"-D", "-P", "-F", "--operations", "--stages", "--pid", pid(), "--hook", "submit=" + kind}
		for _, hook := range []string{"insert", "issue", "requeue", "merge", "complete", "bioqueue", "biocomplete"} {
			args = append(args, "--hook", hook+"="+strings.TrimPrefix(kind, "old"))
		}
		res := tooltest.JSONUndisturbed(t, Tool, args, func() {
			readBlocks(t, l.dev, n)
			writeBlocks(t, z.dev, n)
		})
		for _, stage := range []string{"queue", "device", "total"} {
			key := map[string]string{"stage": stage, "disk": l.name, "partition": l.name, "flags": readFlags(res), "operation": "read"}
			if h := find(t, res, key); h.Num("count") != n {
				t.Errorf("%s: %v times of %s, want %d", kind, h.Num("count"), stage, n)
			}
		}
		key := map[string]string{"stage": "total", "disk": z.name, "partition": z.name, "flags": "Idle-Sync-Write", "operation": "write"}
		if h := find(t, res, key); h.Num("count") != n {
			t.Errorf("%s: %v bios, want %d", kind, h.Num("count"), n)
		}
	}
}
