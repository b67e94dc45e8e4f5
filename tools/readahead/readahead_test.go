package readahead

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// open opens a disk of which no page is in the page cache.
func open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(tooltest.NewLoop(t, 0).Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	drop(t, f)
	if n := resident(t, f); n != 0 {
		t.Fatalf("%d pages are in the page cache, want none", n)
	}
	return f
}

func drop(t *testing.T, f *os.File) {
	t.Helper()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Error(err)
	}
}

// resident returns how many pages of the disk are in the page cache.
func resident(t *testing.T, f *os.File) (n int) {
	t.Helper()
	m, err := unix.Mmap(int(f.Fd()), 0, tooltest.LoopSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	pages := make([]byte, tooltest.LoopSize/os.Getpagesize())
	if err := mincore(m, pages); err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// read runs the tool for a thread that reads, and returns the counters and the number of values.
func read(t *testing.T, args []string, reads func()) (counters tooltest.Row, values float64, shortest float64) {
	t.Helper()
	tid, begin, end := make(chan int), make(chan bool), make(chan bool)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-begin
		reads()
		close(end)
	}()
	res := tooltest.JSON(t, Tool, append(args, "--tid", strconv.Itoa(<-tid)), func() {
		close(begin)
		<-end
	})
	if len(res.Histograms) > 1 {
		t.Errorf("%d histograms, want one: %v", len(res.Histograms), res.Histograms)
	}
	for _, h := range res.Histograms {
		values += h.Num("count")
		shortest = h.Num("min")
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
	return res.Summary.Object("counters"), values, shortest
}

// TestAdvice reads pages ahead by advice, uses some of them later, and removes the others.
func TestAdvice(t *testing.T) {
	tooltest.KernelFunctions(t)
	const wait = 30 * time.Millisecond
	page := os.Getpagesize()
	const pages = 64
	f := open(t)
	for _, args := range [][]string{nil, {"-P"}} {
		drop(t, f)
		counters, values, shortest := read(t, args, func() {
			// The kernel reads at most the read-ahead window or the largest request of the disk per call, whichever
			// is larger (force_page_cache_ra): for a loop device of 5.10 these are 32 pages.
			for i := range pages {
				if err := unix.Fadvise(int(f.Fd()), int64(i*page), int64(page), unix.FADV_WILLNEED); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(wait)
			for i := range pages / 4 {
				if _, err := unix.Pread(int(f.Fd()), make([]byte, page), int64(i*page)); err != nil {
					t.Error(err)
				}
			}
			if err := unix.Fadvise(int(f.Fd()), int64(pages/2*page), int64(pages/2*page), unix.FADV_DONTNEED); err != nil {
				t.Error(err)
			}
		})
		for name, want := range map[string]float64{"total_pages": pages, "used_pages": pages / 4, "removed_pages": pages / 2, "unused_pages": pages / 4} {
			if got := counters.Num(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if values != pages/4 || shortest < float64(wait/time.Millisecond) {
			t.Errorf("%v values of at least %v ms, want %d of at least %v", values, shortest, pages/4, wait)
		}
	}
}

// TestSequential compares with the pages that are in the page cache after a sequential read, which
// can be in large folios.
func TestSequential(t *testing.T) {
	tooltest.KernelFunctions(t)
	f := open(t)
	counters, values, _ := read(t, nil, func() {
		for i := range 8 {
			if _, err := unix.Pread(int(f.Fd()), make([]byte, 16<<10), int64(i)*16<<10); err != nil {
				t.Error(err)
			}
		}
	})
	want, used := float64(resident(t, f)), float64(8*16<<10/os.Getpagesize())
	if counters.Num("total_pages") != want || counters.Num("used_pages")+counters.Num("unused_pages") != want {
		t.Errorf("%v, want %v pages in all, as in the page cache", counters, want)
	}
	if got := counters.Num("used_pages"); got < used || got != values {
		t.Errorf("%v pages used, and %v values, want at least the %v that were read", got, values, used)
	}
}
