package bitesize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// comm is the name of the threads of this process.
func comm(t testing.TB) string {
	t.Helper()
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// readSizes reads n times each number of bytes, with one request per read. Reads do not continue
// each other, so that none are merged.
func readSizes(t testing.TB, f *os.File, n int, sizes ...int) {
	t.Helper()
	const largest = 256 << 10
	buf, err := unix.Mmap(-1, 0, largest, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(buf)
	for i := range n {
		for _, size := range sizes {
			if _, err := unix.Pread(int(f.Fd()), buf[:size], int64(i%8)*2*largest); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSizes reads with known sizes and compares with the kernel's counts of sectors and requests.
func TestSizes(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	limit(t, l)
	const n = 30
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-c", comm(t)}, func() {
		readSizes(t, l.Dev, n, 4<<10, 12<<10, 64<<10)
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Object("key").Str("comm") != comm(t) {
		t.Fatalf("histograms %v, want one of %s", res.Histograms, comm(t))
	}
	h := res.Histograms[0]
	if h.Str("unit") != "Kbytes" || h.Num("count") != 3*n || h.Num("sum") != n*(4+12+64) || h.Num("min") != 4 || h.Num("p50") != 12 || h.Num("max") != 64 {
		t.Errorf("%d reads of each of 4, 12 and 64 KB: %v", n, h)
	}
	buckets, _ := h["buckets"].([]any)
	if len(buckets) != 3 {
		t.Errorf("%d buckets, want 3: %v", len(buckets), buckets)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestFractions reads less than the unit.
func TestFractions(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	if err := unix.IoctlSetInt(int(l.Dev.Fd()), unix.LOOP_SET_BLOCK_SIZE, 512); err != nil {
		t.Fatal(err)
	}
	const n = 10
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-c", comm(t)}, func() { readSizes(t, l.Dev, n, 512, 1536) })
	if len(res.Histograms) != 1 {
		t.Fatalf("%v, want one histogram", res.Histograms)
	}
	if h := res.Histograms[0]; h.Num("count") != 2*n || h.Num("sum") != 2*n || h.Num("min") != 0.5 || h.Num("max") != 1.5 {
		t.Errorf("%d reads of each of 512 and 1536 bytes: %v", n, h)
	}
}

// limit sets the maximum size of the disk's requests, so that no read of the test is split.
func limit(t testing.TB, l *tooltest.Loop) {
	t.Helper()
	file := filepath.Join("/sys/block", l.Name, "queue/max_sectors_kb")
	if err := os.WriteFile(file, []byte("128"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestSplit reads more than the disk accepts in one request.
func TestSplit(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	limit(t, l)
	const n = 10
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-c", comm(t)}, func() {
		readSizes(t, l.Dev, n, 256<<10)
	})
	if len(res.Histograms) != 1 || res.Histograms[0].Num("count") != 2*n || res.Histograms[0].Num("max") != 128 {
		t.Errorf("%d reads of 256 KB in requests of at most 128 KB: %v", n, res.Histograms)
	}
}

// TestFilter selects another name.
func TestFilter(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-c", "nosuch"}, func() { readSizes(t, l.Dev, 5, 4<<10) })
	if len(res.Histograms) != 0 {
		t.Errorf("%v, want none", res.Histograms)
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-d", l.Name}, func() { readSizes(t, l.Dev, 5, 16<<10) })
	for _, want := range []string{
		"comm = " + comm(t) + "\n", "     Kbytes              : count    distribution\n", "        16 -> 31         : 5        |***",
		"count 5, mean 16, p50 16, p90 16,",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}
