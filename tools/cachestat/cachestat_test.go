package cachestat

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const workerName = "cache-worker"

// as calls f on a thread with the name of the worker.
func as(t *testing.T, f func()) {
	t.Helper()
	tooltest.RenameThread(t, workerName)
	f()
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
	disk := tooltest.UncachedDisk(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() {
			for range 3 { // one miss, two hits
				tooltest.TouchPages(t, disk, n, unix.Pread)
			}
		})
	})
	if misses, added := sum(res.Rows, "misses"), sum(res.Rows, "added"); misses != n || added != n {
		t.Errorf("%v misses, %v added, want %d", misses, added, n)
	}
	if !res.Attached("accessed") {
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
	disk := tooltest.UncachedDisk(t)
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() {
		as(t, func() { tooltest.TouchPages(t, disk, n, unix.Pwrite) })
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
		lacks := slices.ContainsFunc(strings.Fields(hooks), func(h string) bool { return !res.Attached(h) })
		if val, ok := r[key]; !ok || (val == nil) != lacks {
			t.Errorf("%s is %v, %v; hooks %v", key, val, ok, res.Ready.List("hooks"))
		}
	}
	if r.Num("cached_mb") == 0 {
		t.Error("no memory is cached")
	}
	if res.Attached("accessed") {
		t.Skip("all hooks are available")
	}
	out := tooltest.Text(t, Tool, []string{"-T"}, func() {})
	lines := strings.Split(out, "\n")
	if f := strings.Fields(lines[1]); strings.Join(strings.Fields(lines[0]), " ") != "TIME HITS MISSES DIRTIES HITRATIO BUFFERS_MB CACHED_MB" || f[1] != "n/a" || f[4] != "n/a" {
		t.Errorf("%q", out)
	}
}
