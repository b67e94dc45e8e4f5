package template

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// fork creates n processes, one after another, and returns their IDs.
func fork(t *testing.T, n int) []int {
	t.Helper()
	var pids []int
	for range n {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// spawn creates n threads that exist at the same time, and returns the IDs of those that did not
// exist before.
func spawn(t *testing.T, n int) map[int]bool {
	t.Helper()
	before := tasks(t)
	ids, release := make(chan int), make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			ids <- syscall.Gettid()
			<-release
		}()
	}
	created := map[int]bool{}
	for range n {
		if id := <-ids; !before[id] {
			created[id] = true
		}
	}
	close(release)
	return created
}

func tasks(t *testing.T) map[int]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, e := range entries {
		id, _ := strconv.Atoi(e.Name())
		ids[id] = true
	}
	return ids
}

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// TestEveryFork checks that there is one row per process, in order, and no other row.
func TestEveryFork(t *testing.T) {
	var want []int
	res := tooltest.JSON(t, Tool, self(), func() {
		want = fork(t, 20)
		spawn(t, 50)
	})
	var got []int
	for _, row := range res.Events {
		if row.Num("pid") != float64(os.Getpid()) || row.Num("child_tid") != row.Num("child_pid") || row.Str("kind") != "process" {
			t.Errorf("unexpected row: %v", row)
		}
		got = append(got, int(row.Num("child_pid")))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if res.Summary.Num("events") != 20 || res.Summary.Num("lost") != 0 {
		t.Errorf("summary is %v", res.Summary)
	}
}

func TestThreads(t *testing.T) {
	var want map[int]bool
	res := tooltest.JSON(t, Tool, append(self(), "--threads"), func() { want = spawn(t, 50) })
	seen := map[int]int{}
	for _, row := range res.Events {
		seen[int(row.Num("child_tid"))]++
		if kind := row.Str("kind"); (kind == "thread") != (row.Num("child_tid") != row.Num("child_pid")) {
			t.Errorf("kind %q: %v", kind, row)
		}
	}
	for tid := range want {
		if seen[tid] != 1 {
			t.Errorf("thread %d has %d rows, want 1", tid, seen[tid])
		}
	}
	if len(want) == 0 {
		t.Error("no new thread")
	}
}

func TestText(t *testing.T) {
	var pids []int
	out := tooltest.Text(t, Tool, self(), func() { pids = fork(t, 1) })
	lines := strings.Split(out, "\n")
	if fields := strings.Fields(lines[0]); fmt.Sprint(fields) != "[PID COMM CHILD]" {
		t.Errorf("header is %q", lines[0])
	}
	fields := strings.Fields(lines[1])
	if len(lines) != 3 || fields[0] != strconv.Itoa(os.Getpid()) || fields[2] != strconv.Itoa(pids[0]) {
		t.Errorf("rows are %q, want one of %v", lines[1:], pids)
	}
}

func TestCSV(t *testing.T) {
	var pids []int
	args := append(self(), "--output", "csv", "--columns", "pid,child_pid")
	out := tooltest.Text(t, Tool, args, func() { pids = fork(t, 2) })
	want := "pid,child_pid\n"
	for _, pid := range pids {
		want += fmt.Sprintf("%d,%d\n", os.Getpid(), pid)
	}
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
