package cachetop

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const workerName = "cachetop-worker"

// as calls f on a thread with that name.
func as(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
	b := append([]byte(workerName), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	f()
}

// touch reads or writes the first n pages of a disk.
func touch(t *testing.T, disk *os.File, n int, call func(int, []byte, int64) (int, error)) {
	t.Helper()
	page := make([]byte, 4096)
	for i := range n {
		if _, err := call(int(disk.Fd()), page, int64(i)*4096); err != nil {
			t.Error(err)
		}
	}
}

// open opens a disk with an empty page cache and without read-ahead. Page faults of the thread must
// not add pages: the test binary is in the page cache.
func open(t *testing.T) *os.File {
	t.Helper()
	if _, err := os.ReadFile("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	l := tooltest.NewLoop(t, 0)
	disk, err := os.OpenFile(l.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	for _, advice := range []int{unix.FADV_DONTNEED, unix.FADV_RANDOM} {
		if err := unix.Fadvise(int(disk.Fd()), 0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// has reports whether the tool has attached the hook.
func has(res *tooltest.Result, hook string) bool {
	return slices.ContainsFunc(res.Ready.List("hooks"), func(h string) bool { return strings.HasPrefix(h, hook+": ") })
}

func TestReads(t *testing.T) {
	const n = 100
	const few = 50 // accesses to pages of the test binary, by page faults of the thread
	disk := open(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() {
			for range 3 { // one miss, two hits
				touch(t, disk, n, unix.Pread)
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
	if has(res, "accessed") {
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
	disk := open(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() { touch(t, disk, n, unix.Pwrite) })
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
		as(t, func() { touch(t, disk, n, unix.Pwrite) })
	})
	if len(res.Rows) != 1 || res.Rows[0].Num("added") != 0 || res.Rows[0].Num("dirtied") != n || res.Rows[0].Num("write_hit_percent") != 100 {
		t.Errorf("writes to cached pages: %v", res.Rows)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	disk := open(t)
	out := tooltest.Text(t, Tool, []string{"-C", "--comm", workerName, "60"}, func() {
		as(t, func() { touch(t, disk, 3, unix.Pread) })
	})
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "PID UID CMD HITS MISSES DIRTIES READ_HIT% WRITE_HIT%" {
		t.Errorf("%q", lines)
	}
}
