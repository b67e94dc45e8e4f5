package dirtop

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func self() string { return strconv.Itoa(os.Getpid()) }

// tree creates directories with a file each, and returns the open files.
func tree(t *testing.T, dirs ...string) (files []int) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(filepath.Join(dir, "file"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		files = append(files, fd)
	}
	return files
}

// sum adds up the intervals of a directory.
func sum(res *tooltest.Result, dir string) (got [4]float64) {
	for _, r := range res.Rows {
		if r.Str("path") == dir {
			for i, key := range []string{"reads", "writes", "read_bytes", "write_bytes"} {
				got[i] += r.Num(key)
			}
		}
	}
	return got
}

// TestDirectories checks the counts of files in a directory, deeply below it, in an inner directory
// that is also selected, and elsewhere.
func TestDirectories(t *testing.T) {
	top := t.TempDir()
	a, b := filepath.Join(top, "a"), filepath.Join(top, "b")
	deep, inner := filepath.Join(a, "1/2/3/4"), filepath.Join(a, "inner")
	files := tree(t, a, deep, inner, b, filepath.Join(top, "other"))
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"--pid", self(), "-d", a + "," + inner, "-d", filepath.Join(top, "[b]"), "50ms"}, func() {
		for i, fd := range append(files, pipe[1]) {
			size := 100 << i
			if n, err := unix.Write(fd, make([]byte, size)); n != size || err != nil {
				t.Errorf("write %d bytes: %d, %v", size, n, err)
			}
		}
		if n, err := unix.Pread(files[0], make([]byte, 4096), 0); n != 100 || err != nil {
			t.Errorf("read: %d, %v", n, err)
		}
		if n, err := unix.Pread(files[3], make([]byte, 10), 0); n != 10 || err != nil {
			t.Errorf("read: %d, %v", n, err)
		}
	})
	for dir, want := range map[string][4]float64{a: {1, 2, 100, 300}, inner: {0, 1, 0, 400}, b: {1, 1, 10, 800}} {
		if got := sum(res, dir); got != want {
			t.Errorf("%s: reads, writes and their bytes %v, want %v", dir, got, want)
		}
	}
	for _, r := range res.Rows {
		if dir := r.Str("path"); dir != a && dir != inner && dir != b {
			t.Errorf("row of another directory: %v", r)
		}
	}
}

// TestNotAttributed checks the links of a file, and the counters of calls that no row contains.
func TestNotAttributed(t *testing.T) {
	top := t.TempDir()
	a, b := filepath.Join(top, "a"), filepath.Join(top, "b")
	deep := filepath.Join(a, strings.Repeat("d/", 70))
	files := tree(t, a, b, deep, filepath.Join(top, "other"))
	if err := os.Link(filepath.Join(a, "file"), filepath.Join(b, "link")); err != nil {
		t.Fatal(err)
	}
	link, err := unix.Open(filepath.Join(b, "link"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(link)
	tid, begin, end := make(chan int), make(chan bool), make(chan bool)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-begin
		for i, fd := range append(files, link) {
			for range i + 1 {
				if _, err := unix.Write(fd, []byte("x")); err != nil {
					t.Error(err)
				}
			}
		}
		close(end)
	}()
	// The pattern also matches the file.
	if err := os.WriteFile(filepath.Join(top, "c"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"--tid", strconv.Itoa(<-tid), "-d", filepath.Join(top, "[abc]"), "60"}, func() {
		close(begin)
		<-end
	})
	for dir, want := range map[string][4]float64{a: {0, 1, 0, 1}, b: {0, 2 + 5, 0, 2 + 5}} {
		if got := sum(res, dir); got != want {
			t.Errorf("%s: reads, writes and their bytes %v, want %v", dir, got, want)
		}
	}
	counters := res.Summary.Object("counters")
	if counters.Num("too_deep") != 3 || counters.Num("elsewhere") != 4 {
		t.Errorf("counters %v, want too_deep 3 and elsewhere 4", counters)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	files := tree(t, dir)
	out := tooltest.Text(t, Tool, []string{"-C", "-p", self(), "-d", dir, "60"}, func() {
		if _, err := unix.Write(files[0], make([]byte, 2048)); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "READS WRITES R_Kb W_Kb PATH" ||
		strings.Join(strings.Fields(lines[2]), " ") != "0 1 0.00 2.00 "+dir {
		t.Errorf("%q", lines)
	}
}

func TestRefused(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	for _, args := range [][]string{nil, {"-d", filepath.Join(t.TempDir(), "missing")}, {"-d", "/proc/self/fd/[9]*x"}, {"-d", "/proc/self/exe"}, {"-d", "/proc/self/ex[e]"}} {
		tooltest.Fails(t, Tool, args, tool.ExitUsage, "--root-directories")
	}
}
