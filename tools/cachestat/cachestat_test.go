package cachestat

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

const workerName = "cache-worker"

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

// touch reads or writes pages 0 to n of a disk.
func touch(t *testing.T, disk *os.File, n int, call func(int, []byte, int64) (int, error)) {
	t.Helper()
	page := make([]byte, 4096)
	for i := range n {
		if _, err := call(int(disk.Fd()), page, int64(i)*4096); err != nil {
			t.Error(err)
		}
	}
}

// open opens a disk with an empty page cache and without read-ahead.
func open(t *testing.T) *os.File {
	t.Helper()
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

func sum(rows []tooltest.Row, key string) (n float64) {
	for _, r := range rows {
		n += r.Num(key)
	}
	return n
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
	if misses, added := sum(res.Rows, "misses"), sum(res.Rows, "added"); misses != n || added != n {
		t.Errorf("%v misses, %v added, want %d", misses, added, n)
	}
	if !has(res, "accessed") {
		return // see TestLacking
	}
	hits, ratio := sum(res.Rows, "hits"), sum(res.Rows, "hit_ratio_percent")
	if hits < 2*n || hits > 2*n+few {
		t.Errorf("%v hits, want %d to %d", hits, 2*n, 2*n+few)
	}
	if want := 100 * hits / (hits + n); ratio < want-0.01 || ratio > want+0.01 {
		t.Errorf("hit ratio of %v hits and %d misses is %v %%, want %v", hits, n, ratio, want)
	}
}

func TestWrites(t *testing.T) {
	const n = 50
	disk := open(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() { touch(t, disk, n, unix.Pwrite) })
	})
	for key, want := range map[string]float64{"added": n, "dirtied": n, "dirties": n, "misses": 0} {
		if got := sum(res.Rows, key); got != want {
			t.Errorf("%v %s, want %v", got, key, want)
		}
	}
}

// TestLacking checks that columns of unavailable hooks are null in JSON, n/a in text and cannot be
// filtered by.
func TestLacking(t *testing.T) {
	res := tooltest.JSON(t, Tool, nil, func() {})
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows", len(res.Rows))
	}
	r := res.Rows[0]
	for key, hooks := range map[string]string{
		"hits": "accessed added dirtied dirties", "misses": "added dirtied", "dirties": "dirties", "accessed": "accessed",
		"added": "added", "dirtied": "dirtied",
	} {
		lacks := slices.ContainsFunc(strings.Fields(hooks), func(h string) bool { return !has(res, h) })
		if val, ok := r[key]; !ok || (val == nil) != lacks {
			t.Errorf("%s is %v, %v; hooks %v", key, val, ok, res.Ready.List("hooks"))
		}
	}
	if r.Num("cached_mb") == 0 {
		t.Error("no memory is cached")
	}
	if has(res, "accessed") {
		t.Skip("all hooks are available")
	}
	out := tooltest.Text(t, Tool, []string{"-T"}, func() {})
	lines := strings.Split(out, "\n")
	if f := strings.Fields(lines[1]); strings.Join(strings.Fields(lines[0]), " ") != "TIME HITS MISSES DIRTIES HITRATIO BUFFERS_MB CACHED_MB" || f[1] != "n/a" || f[4] != "n/a" {
		t.Errorf("%q", out)
	}
}
