package pidpersec

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// fork creates n processes that exit at once.
func fork(t *testing.T, n int) {
	t.Helper()
	for range n {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"none", "-test.run", "^$"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// spawn creates threads that exist at the same time, and returns how many did not exist before.
func spawn(t *testing.T, n int) (created int) {
	t.Helper()
	before := map[string]bool{}
	for _, tid := range tasks(t) {
		before[tid] = true
	}
	started, release := make(chan bool), make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			started <- true
			<-release
		}()
		<-started
	}
	for _, tid := range tasks(t) {
		if !before[tid] {
			created++
		}
	}
	close(release)
	return created
}

func tasks(t *testing.T) (ids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

func sum(rows []tooltest.Row, key string) (n int) {
	for _, r := range rows {
		n += int(r.Num(key))
	}
	return n
}

func TestCounts(t *testing.T) {
	threads := 0
	res := tooltest.JSON(t, Tool, append(self(), "30ms"), func() {
		fork(t, 25)
		threads = spawn(t, 40)
	})
	if got := sum(res.Rows, "processes"); got != 25 {
		t.Errorf("%d processes, want 25", got)
	}
	// The Go runtime can create further threads, which may have ended before.
	if got := sum(res.Rows, "threads"); got < threads || threads == 0 {
		t.Errorf("%d threads, want at least %d", got, threads)
	}
}

// TestAll compares the number of all new processes and threads with that of the kernel.
func TestAll(t *testing.T) {
	tooltest.Root(t)
	if tooltest.HidesProcess1() {
		t.Skip("the kernel hides process 1, which can create processes")
	}
	var kernel int
	res := tooltest.JSON(t, Tool, []string{"60"}, func() {
		before := forks(t)
		fork(t, 50)
		kernel = forks(t) - before
	})
	if got := sum(res.Rows, "processes") + sum(res.Rows, "threads"); got < kernel || kernel < 50 {
		t.Errorf("%d tasks, want at least the %d of /proc/stat", got, kernel)
	}
}

// forks returns the number of processes and threads created since boot.
func forks(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nprocesses ")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRates(t *testing.T) {
	res := tooltest.JSON(t, Tool, append(self(), "60"), func() { fork(t, 5) })
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want one", len(res.Rows))
	}
	r := res.Rows[0]
	seconds := r.Num("interval_ns") / 1e9
	for key, n := range map[string]float64{
		"processes_per_s": r.Num("processes"), "threads_per_s": r.Num("threads"), "tasks_per_s": r.Num("processes") + r.Num("threads"),
	} {
		if got := r.Num(key) * seconds; got < n*0.999 || got > n*1.001 {
			t.Errorf("%s is %v, want %v in %v s", key, r.Num(key), n, seconds)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, append(self(), "60"), func() { fork(t, 3) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != "TIME PIDs/s PROC/s THREAD/s" {
		t.Errorf("%q", out)
	}
}
