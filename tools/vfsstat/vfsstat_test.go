package vfsstat

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// helper names the directory in which a child of the test executes work.
const helper = "CORESCOPE_VFSSTAT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helper); dir != "" {
		work(dir)
		return
	}
	os.Exit(m.Run())
}

// workerName is the name that the worker thread has once its work starts.
const workerName = "vfs-worker"

// work creates 7 files, opens them once more, reads 20 and writes 30 times, and so on.
func work(dir string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	buf := make([]byte, 10)
	var fds []int
	path := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	rename(workerName)
	for i := range 7 {
		fd, err := unix.Open(path(i), unix.O_CREAT|unix.O_RDWR, 0o600)
		must(err)
		fds = append(fds, fd)
		_, err = unix.Open(path(i), unix.O_CREAT|unix.O_RDONLY, 0o600) // exists already
		must(err)
	}
	for range 30 {
		_, err := unix.Write(fds[0], buf)
		must(err)
	}
	for range 10 {
		_, err := unix.Pread(fds[0], buf, 0)
		must(err)
		_, err = unix.Read(fds[1], buf) // end of file
		must(err)
	}
	unix.Read(-1, buf)                        // fails
	unix.Open(path(99), unix.O_RDONLY, 0o600) // fails
	must(unix.Fsync(fds[0]))
	must(unix.Fdatasync(fds[0]))
	for i := range 5 {
		must(unix.Unlink(path(i)))
	}
	for i := range 4 {
		must(unix.Mkdir(path(100+i), 0o700))
	}
	for i := range 3 {
		must(unix.Rmdir(path(100 + i)))
	}
	rename("other")
}

// rename gives the thread another name.
func rename(name string) {
	runtime.LockOSThread()
	b := append([]byte(name), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); err != nil {
		panic(err)
	}
}

func worker(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCounts(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "30ms"}, func() { worker(t) })
	for key, want := range map[string]float64{
		"reads": 20, "writes": 30, "fsyncs": 2, "opens": 14, "creates": 7, "unlinks": 5, "mkdirs": 4, "rmdirs": 3,
	} {
		var got float64
		for _, r := range res.Rows {
			got += r.Num(key)
		}
		if got != want {
			t.Errorf("%v %s, want %v", got, key, want)
		}
	}
}

func TestRates(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"--columns", "all", "--comm", workerName, "60"}, func() { worker(t) })
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want one", len(res.Rows))
	}
	r := res.Rows[0]
	want := r.Num("reads") / r.Num("interval_ns") * 1e9
	if got := r.Num("reads_per_s"); got < want*0.999 || got > want*1.001 || got == 0 {
		t.Errorf("%v reads per second, want %v", got, want)
	}
}

// TestText checks a row of zeros per interval, and one header.
func TestText(t *testing.T) {
	out := tooltest.Text(t, Tool, []string{"--comm", "nobody", "1ms"}, func() { worker(t) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 2 || strings.Join(strings.Fields(lines[0]), " ") != "TIME READ/s WRITE/s FSYNC/s OPEN/s CREATE/s UNLINK/s MKDIR/s RMDIR/s" {
		t.Fatalf("%q", out)
	}
	for _, line := range lines[1:] {
		if _, rates, _ := strings.Cut(line, " "); strings.Join(strings.Fields(rates), "") != "00000000" {
			t.Errorf("%q", line)
		}
	}
}
