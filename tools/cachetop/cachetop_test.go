package cachetop

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const workerName = "cachetop-worker"

// as calls f on a thread with the name of the worker.
func as(t *testing.T, f func()) {
	t.Helper()
	tooltest.RenameThread(t, workerName)
	f()
}

// uncachedDisk opens a disk that is not in the page cache. Page faults of the thread must not add pages: the
// test binary is in the page cache.
func uncachedDisk(t *testing.T) *os.File {
	t.Helper()
	if _, err := os.ReadFile("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	return tooltest.UncachedDisk(t)
}

func TestReads(t *testing.T) {
	const n = 100
	const few = 50 // accesses to pages of the test binary, by page faults of the thread
	disk := uncachedDisk(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() {
			for range 3 { // one miss, two hits
				tooltest.TouchPages(t, disk, n, unix.Pread)
			}
		})
	})
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(res.Rows), res.Rows)
	}
	r := res.Rows[0]
	if r.Num("misses") != n || r.Num("added") != n || int(r.Num("pid")) != os.Getpid() || r.Num("uid") != 0 || r.Str("comm") != workerName {
		t.Errorf("row %v, want %d misses of this process", r, n)
	}
	if res.Attached("accessed") {
		hits := r.Num("hits")
		if want := 100 * hits / (hits + n); hits < 2*n || hits > 2*n+few || r.Num("read_hit_percent") < want-0.01 || r.Num("read_hit_percent") > want+0.01 {
			t.Errorf("%v hits of %d to %d, hit ratio %v %%, want %v", hits, 2*n, 2*n+few, r["read_hit_percent"], want)
		}
	} else if hits, ok := r["hits"]; !ok || hits != nil || r["read_hit_percent"] != nil {
		t.Errorf("without the hook accessed: row %v, want null for hits", r)
	}
}

// TestWrites writes pages that are not cached, then pages that are.
func TestWrites(t *testing.T) {
	const n = 50
	disk := uncachedDisk(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() { tooltest.TouchPages(t, disk, n, unix.Pwrite) })
	})
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(res.Rows), res.Rows)
	}
	for key, want := range map[string]float64{"added": n, "dirtied": n, "dirties": n, "misses": 0, "write_hit_percent": 0} {
		if got := res.Rows[0].Num(key); got != want {
			t.Errorf("%v %s, want %v", got, key, want)
		}
	}
	if err := disk.Sync(); err != nil {
		t.Fatal(err)
	}
	res = tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() { tooltest.TouchPages(t, disk, n, unix.Pwrite) })
	})
	if len(res.Rows) != 1 || res.Rows[0].Num("added") != 0 || res.Rows[0].Num("dirtied") != n || res.Rows[0].Num("write_hit_percent") != 100 {
		t.Errorf("writes to cached pages: %v", res.Rows)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	disk := uncachedDisk(t)
	out := tooltest.Text(t, Tool, []string{"-C", "--comm", workerName, "60"}, func() {
		as(t, func() { tooltest.TouchPages(t, disk, 3, unix.Pread) })
	})
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "PID UID CMD HITS MISSES DIRTIES READ_HIT% WRITE_HIT%" {
		t.Errorf("%q", lines)
	}
}
