package biolatpcts

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

const percentiles = "0,1,25,50,75.0,90,99.9,100"

// timedReads reads blocks and returns how long each read took, in ns and sorted.
func timedReads(t testing.TB, f *os.File, n int) (took []float64) {
	t.Helper()
	b := tooltest.Block(t)
	for i := range n {
		begin := tooltest.Clock(unix.CLOCK_MONOTONIC)
		if _, err := unix.Pread(int(f.Fd()), b, int64(i%512)*tooltest.Stride); err != nil {
			t.Fatal(err)
		}
		took = append(took, float64(tooltest.Clock(unix.CLOCK_MONOTONIC)-begin))
	}
	slices.Sort(took)
	return took
}

// rank returns the nearest-rank percentile of sorted values.
func rank(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// bounds returns the limits of the bucket that contains the nearest-rank percentile.
func bounds(t testing.TB, h tooltest.Row, p float64) (lo, hi float64) {
	t.Helper()
	left := max(1, math.Ceil(p/100*h.Num("count")))
	buckets, _ := h["buckets"].([]any)
	for _, b := range buckets {
		bucket := tooltest.Row(b.(map[string]any))
		if left -= bucket.Num("count"); left <= 0 {
			return bucket.Num("lo"), bucket.Num("hi")
		}
	}
	t.Fatalf("no bucket of percentile %v in %v", p, h)
	return 0, 0
}

// TestPercentiles checks each percentile with the buckets, and with the time that the reads took for
// the process: the k-th fastest request is not slower than the k-th fastest read.
func TestPercentiles(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	const n = 400
	for _, which := range []string{"on-device", "after-rq-alloc"} {
		var took []float64
		res := tooltest.JSONUndisturbed(t, Tool, []string{"-i", "-1", "-p", percentiles, "-w", which, "--pid", strconv.Itoa(os.Getpid()), l.Name}, func() {
			took = timedReads(t, l.Dev, n)
		})
		if len(res.Histograms) != 1 || tooltest.Lost(res.Summary) != 0 {
			t.Fatalf("%s: %v, %v", which, res.Histograms, res.Summary)
		}
		h := res.Histograms[0]
		if key := h.Object("key"); key.Str("disk") != l.Name || key.Str("operation") != "read" || h.Num("count") != n {
			t.Errorf("%s: %v", which, h)
		}
		pcts := h.Object("percentiles")
		if len(pcts) != 8 || pcts.Num("0") != h.Num("min") || pcts.Num("100") != h.Num("max") || pcts.Num("50") != h.Num("p50") {
			t.Errorf("%s: percentiles %v of %v", which, pcts, h)
		}
		for _, name := range strings.Split(percentiles, ",") {
			p, _ := strconv.ParseFloat(name, 64)
			got := pcts.Num(name)
			if lo, hi := bounds(t, h, p); got < lo || got > hi {
				t.Errorf("%s: percentile %s is %v, its bucket is %v to %v", which, name, got, lo, hi)
			}
			if most := rank(took, p) / 1000; got <= 0 || got > 1.05*most {
				t.Errorf("%s: percentile %s is %v us, that of the reads is %v us", which, name, got, most)
			}
		}
	}
}

// TestFullTable reads with a table that has space for one request. Each request that is not shown is
// lost once, although the program tries to store it at its submission, insertion and issue.
func TestFullTable(t *testing.T) {
	small := tool.Define(Tool.Spec, options{Which: "on-device"}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*source.Hists[histKey, label]).MapEntries["ios"] = 1
		}
		return src, err
	})
	l := tooltest.NewLoop(t, 0)
	const n = 50
	res := tooltest.JSONUndisturbed(t, small, []string{l.Name}, func() { tooltest.ReadBlocks(t, l.Dev, n) })
	count, full := 0.0, res.Summary.Object("reasons").Num("map_full")
	for _, h := range res.Histograms {
		count += h.Num("count")
	}
	if full == 0 || full != res.Summary.Num("lost") || count+full != n {
		t.Errorf("%v requests shown and %v lost, want %d in all: %v", count, full, n, res.Summary)
	}
}

// TestNoTime reads from a disk without I/O accounting, for which the kernel does not record when it
// allocates a request.
func TestNoTime(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	file := filepath.Join("/sys/block", l.Name, "queue/iostats")
	if err := os.WriteFile(file, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(file, []byte("1"), 0) })
	const n = 20
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-w", "after-rq-alloc", l.Name}, func() { tooltest.ReadBlocks(t, l.Dev, n) })
	untimed, count := res.Summary.Object("counters").Num("untimed"), 0.0
	for _, h := range res.Histograms {
		count += h.Num("count")
	}
	if want := fmt.Sprintf("untimed %v: requests for which the kernel recorded no such time", untimed); untimed > 0 && !strings.Contains(res.Stderr, want) {
		t.Errorf("messages %q, want %q", res.Stderr, want)
	}
	if untimed+count != n || res.Summary.Object("reasons").Num("unobserved") != untimed {
		t.Errorf("%v requests shown and %v untimed, want %d in all: %v", count, untimed, n, res.Summary)
	}
}

// TestAllocTime checks the option that few kernels support.
func TestAllocTime(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	args := []string{"-w", "from-rq-alloc", l.Name}
	if !tooltest.HasMember(t, "request", "alloc_time_ns") {
		tooltest.Fails(t, Tool, args, tool.ExitUnsupported, "CONFIG_BLK_RQ_ALLOC_TIME")
		return
	}
	const n = 20
	res := tooltest.JSONUndisturbed(t, Tool, args, func() { tooltest.ReadBlocks(t, l.Dev, n) })
	count := res.Summary.Object("counters").Num("untimed")
	for _, h := range res.Histograms {
		count += h.Num("count")
	}
	if count != n {
		t.Errorf("%v requests, want %d", count, n)
	}
}

// TestDevice names the disk by its number and by its path, and a disk that does not exist.
func TestDevice(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	number, err := os.ReadFile(filepath.Join("/sys/block", l.Name, "dev"))
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range []string{strings.TrimSpace(string(number)), l.Path} {
		res := tooltest.JSONUndisturbed(t, Tool, []string{"-i", "-1", disk}, func() { tooltest.ReadBlocks(t, l.Dev, 10) })
		if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 10 {
			t.Errorf("%s: %v", disk, res.Histograms)
		}
	}
	tooltest.Fails(t, Tool, []string{"-p", "50,99,50.0"}, tool.ExitUsage, "--pcts: percentile 50 is given twice, as 50 and 50.0")
	for _, disk := range []string{"nosuchdisk", "4095:1048575"} {
		tooltest.Fails(t, Tool, []string{disk}, tool.ExitUsage, "argument dev: find disk")
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-p", "50,99.90", l.Name}, func() { tooltest.ReadBlocks(t, l.Dev, 25) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "DISK OPERATION COUNT p50 p99.90" {
		t.Fatalf("%q", out)
	}
	rows := 0
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != 5 || f[0] != l.Name {
			continue
		}
		rows++
		if _, err := time.ParseDuration(f[3]); f[1] != "read" || err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if rows == 0 {
		t.Errorf("no row in %q", out)
	}
}

func TestCSV(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-i", "-1", "-p", "50,100", "--output", "csv", l.Name}, func() { tooltest.WriteBlocks(t, l.Dev, 10) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || lines[0] != "time,disk,operation,unit,count,p50,p100" || !strings.Contains(lines[1], ","+l.Name+",write,usecs,10,") {
		t.Errorf("%q", out)
	}
}

// TestNames compares the names of operations with the enum of the programs.
func TestNames(t *testing.T) {
	for op, name := range map[bpfBlockOp]string{
		bpfBlockOpBLOCK_OP_READ: "read", bpfBlockOpBLOCK_OP_FLUSH: "flush", bpfBlockOpBLOCK_OP_DISCARD: "discard",
		bpfBlockOpBLOCK_OP_ZONE_APPEND: "zone_append", bpfBlockOpBLOCK_OP_SCSI_OUT: "scsi_out", bpfBlockOpBLOCK_OP_OTHER: "unknown",
	} {
		if got := blockio.OperationName(uint32(op)); got != name {
			t.Errorf("%d is %s, want %s", op, got, name)
		}
	}
}
