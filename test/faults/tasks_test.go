package faults

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/corescope/corescope/tools"
)

// tasks are how many there are beside the usual, in so many processes: Go allows a
// process 10,000 threads.
const (
	tasks     = 30_000
	processes = 6
)

// TestTasks has 30,000 threads that sleep. Each tool starts among them and is right in
// its numbers, while all of them end too.
func TestTasks(t *testing.T) {
	skipShort(t)
	skipWithoutRoom(t)
	var crowds []*load
	for range processes {
		l := newLoad(t, "-")
		l.begin(t, "crowd", tasks/processes)
		crowds = append(crowds, l)
	}
	for _, l := range crowds {
		if n := l.end(t); n != tasks/processes {
			t.Fatalf("%d threads", n)
		}
	}
	var started sync.WaitGroup
	ended := make(chan struct{})
	t.Run("each", func(t *testing.T) {
		started.Add(len(tools.All()))
		eachTool(t, func(s *subject) {
			done := sync.OnceFunc(started.Done)
			defer done()
			r := s.command().start(s).await(s)
			all := s.usual()
			done()
			<-ended
			all.add(s.usual())
			r.stop(s).judge(s, all)
		})
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

// skipWithoutRoom skips the test where so many threads do not fit: each takes some 60 KB
// of the kernel's memory and of its process.
func skipWithoutRoom(t *testing.T) {
	t.Helper()
	const room = tasks * 64 << 10
	if free := number(t, "/proc/meminfo", "MemAvailable:") << 10; free < 2*room {
		t.Skipf("%d MB of memory are not enough for %d threads", free>>20, tasks)
	}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if most := number(t, file, ""); most < tasks+2000 {
			t.Skipf("%s allows %d threads", file, most)
		}
	}
}

// number reads the number behind a name.
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
