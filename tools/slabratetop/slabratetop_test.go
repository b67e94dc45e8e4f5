package slabratetop

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// objectSize returns the size of the objects of a cache from /proc/slabinfo, 0 if it has no such
// cache.
func objectSize(t *testing.T, cache string) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == cache {
			n, err := strconv.ParseFloat(f[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func total(rows []tooltest.Row, cache string) (allocs, bytes float64) {
	for _, r := range rows {
		if r.Str("cache") == cache {
			allocs += r.Num("allocs")
			bytes += r.Num("bytes")
		}
	}
	return allocs, bytes
}

// opens opens a file n times.
func opens(t *testing.T, n int) {
	t.Helper()
	for range n {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		unix.Close(fd)
	}
}

// TestFiles opens files: the kernel allocates one object of the cache filp for each.
func TestFiles(t *testing.T) {
	const n = 1000
	size := objectSize(t, "filp")
	if size == 0 {
		t.Skip("the kernel has merged the cache filp with another one")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, flags := range []string{"", "60", "--sort count", "--sort name"} {
		args := append([]string{"--tid", strconv.Itoa(unix.Gettid())}, strings.Fields(flags)...)
		res := tooltest.JSON(t, Tool, args, func() {})
		if allocs, _ := total(res.Rows, "filp"); allocs > 0 {
			t.Errorf("%v allocations by a thread that opens no file", allocs)
		}
		tid := make(chan int)
		begin, end := make(chan bool), make(chan bool)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			<-begin
			opens(t, n)
			close(end)
		}()
		args[1] = strconv.Itoa(<-tid)
		res = tooltest.JSON(t, Tool, args, func() {
			close(begin)
			<-end
		})
		allocs, bytes := total(res.Rows, "filp")
		if allocs != n || bytes != n*size {
			t.Errorf("%q: %v allocations of %v bytes, want %d of %v", flags, allocs, bytes, n, n*size)
		}
	}
}

// TestMerged expects the other names of a cache.
func TestMerged(t *testing.T) {
	dir := t.TempDir()
	for name, to := range map[string]string{"filp": ":1", "cred": ":2", "pid": ":2", "bio": ":2"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := mergedCaches(dir)
	if got["pid"] != "bio,cred" || got["bio"] != "cred,pid" || got["filp"] != "" {
		t.Errorf("%q", got)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"-p", fmt.Sprint(os.Getpid()), "-C", "-r", "3", "60"}, func() { opens(t, 10) })
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "CACHE ALLOCS BYTES\n") || !strings.Contains(out, "loadavg") {
		t.Errorf("%q", out)
	}
}
