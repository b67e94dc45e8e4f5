package faults

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/corescope/corescope/tools"
)

// tasks is the number of additional threads, in several processes: the Go runtime allows 10,000
// threads per process.
const (
	tasks     = 30_000
	processes = 6
)

// TestTasks starts each tool while 30,000 additional threads sleep, and checks its counts while
// these threads exit.
func TestTasks(t *testing.T) {
	skipShort(t)
	skipWithoutMemory(t)
	var crowds []*load
	for range processes {
		l := newLoad(t, "-")
		l.begin(t, "crowd", tasks/processes)
		crowds = append(crowds, l)
	}
	for _, l := range crowds {
		if n := l.end(t); n != tasks/processes {
			t.Fatalf("%d threads, want %d", n, tasks/processes)
		}
	}
	var started sync.WaitGroup
	ended := make(chan struct{})
	t.Run("each", func(t *testing.T) {
		started.Add(len(tools.All()))
		for _, tl := range tools.All() {
			t.Run(tl.Name, func(t *testing.T) {
				done := sync.OnceFunc(started.Done)
				defer done() // also if this machine lacks what the tool observes
				t.Parallel()
				s := newSubject(t, tl, false)
				r := s.command().start(s).await(s)
				all := s.usual()
				done()
				<-ended
				all.add(s.usual())
				r.stop(s).judge(s, all)
			})
		}
		go func() {
			started.Wait()
			for _, l := range crowds {
				l.cmd.Process.Kill()
				l.cmd.Wait()
			}
			close(ended)
		}()
	})
}

// skipWithoutMemory skips the test if memory or limits do not suffice for so many threads: each
// takes about 60 KB in the kernel and in its process.
func skipWithoutMemory(t *testing.T) {
	t.Helper()
	const memory = tasks * 64 << 10
	if free := number(t, "/proc/meminfo", "MemAvailable:") << 10; free < 2*memory {
		t.Skipf("%d MB of memory are free: %d threads need %d MB", free>>20, tasks, memory>>20)
	}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if most := number(t, file, ""); most < tasks+2000 {
			t.Skipf("%s allows only %d threads", file, most)
		}
	}
}

// number reads the number after a name in a file, such as a field of /proc/PID/status.
func number(t *testing.T, file, name string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
