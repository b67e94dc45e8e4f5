package fsdist

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

func byFunctions(res *tooltest.Result) bool {
	return slices.ContainsFunc(res.Ready.List("hooks"), func(hook string) bool { return strings.HasPrefix(hook, "function: ") })
}

// find returns the histogram of an operation, or nil.
func find(res *tooltest.Result, op string) tooltest.Row {
	for _, h := range res.Histograms {
		if h.Object("key").Str("operation") == op {
			return h
		}
	}
	return nil
}

// slow delays reads by 30 ms, and no other operation.
func slow(op string, size int) (time.Duration, unix.Errno, int) {
	if op == "read" {
		return 30 * time.Millisecond, 0, size
	}
	return 0, 0, size
}

// operate does 20 writes, 3 reads, an fsync and some fstats, and returns the duration of the reads.
func operate(t testing.TB, path string) time.Duration {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 100)
	var st unix.Stat_t
	for range 20 {
		unix.Write(fd, buf)
	}
	begin := time.Now()
	for range 3 {
		unix.Read(fd, buf)
	}
	took := time.Since(begin)
	unix.Fsync(fd)
	for range 5 {
		unix.Fstat(fd, &st)
	}
	return took
}

// TestOperations checks counts and times of each operation, for several type options.
func TestOperations(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	f.Set(slow)
	var took time.Duration
	res := tooltest.JSON(t, Tool, append(self(), "-t", "fuse"), func() { took = operate(t, f.File) })
	for op, n := range map[string]float64{"open": 1, "write": 20, "read": 3, "fsync": 1} {
		h := find(res, op)
		if h == nil || h.Num("count") != n {
			t.Errorf("%s: %v, want %v", op, h, n)
		}
	}
	if h := find(res, "getattr"); byFunctions(res) != (h != nil && h.Num("count") >= 5) {
		t.Errorf("getattr: %v", h)
	}
	reads := find(res, "read")
	if reads.Num("min") < 30_000 || reads.Num("sum") > float64(took.Microseconds()+1) || reads.Str("unit") != "usecs" {
		t.Errorf("reads that took %v: %v", took, reads)
	}
}

// TestKeys groups by type and process.
func TestKeys(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	res := tooltest.JSON(t, Tool, append(self(), "--types", "--pids", "--containers", "--cgroups", "-m"), func() { operate(t, f.File) })
	i := slices.IndexFunc(res.Histograms, func(h tooltest.Row) bool {
		key := h.Object("key")
		return key.Str("operation") == "write" && key.Str("fs") == "fuse" && key.Num("pid") == float64(os.Getpid())
	})
	if i < 0 || res.Histograms[i].Num("count") != 20 || res.Histograms[i].Str("unit") != "msecs" {
		t.Errorf("histograms %v", res.Histograms)
	}
}

// TestOtherTypes checks that other types than the selected one are not counted.
func TestOtherTypes(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	res := tooltest.JSON(t, Tool.As("ext4dist"), self(), func() { operate(t, f.File) })
	if h := find(res, "fsync"); h != nil {
		t.Errorf("fsync of another type: %v", h)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	text := tooltest.Text(t, Tool.As("fusedist"), self(), func() { operate(t, f.File) })
	for _, want := range []string{"operation = write", "usecs", "|"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// TestExported checks buckets and exemplars of reads that take at least 30 ms.
func TestExported(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	f.Set(slow)
	var took time.Duration
	run := tooltest.Export(t, Tool, append(self(), "-t", "fuse"), func() { took = operate(t, f.File) })
	reads := 0
	for _, h := range run.Histograms {
		h.CheckBuckets(t)
		h.CheckTask(t, os.Getpid())
		if h.Key["operation"] != "read" {
			continue
		}
		reads++
		e := h.Exponential
		for _, b := range e.Classic(-20, 6) {
			if b.Le <= 0.03 && b.Count != 0 || b.Le >= took.Seconds() && b.Count != 3 {
				t.Errorf("%d reads up to %v s: 3 took at least 30 ms, and %v in total", b.Count, b.Le, took)
			}
		}
	}
	if reads != 1 {
		t.Errorf("%d histograms of reads, want 1", reads)
	}
}
