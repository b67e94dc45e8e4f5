package faults

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A load is a process whose first thread executes jobs and otherwise blocks in read(2), so that the
// number of events that a tool can observe is exact.
type load struct {
	cmd   *exec.Cmd
	in    io.Writer
	out   *bufio.Reader
	pid   int // also the TID of its first thread
	place string
}

const loadEnv = "CORESCOPE_FAULTS_LOAD"

func init() {
	if os.Getenv(loadEnv) != "" {
		// In init, because the main goroutine then runs on the first thread.
		runtime.LockOSThread()
	}
}

// work executes the jobs that standard input requests as "JOB\tN\tPLACE", and answers each with a
// line.
func work() {
	var answer any = 0
	buf := make([]byte, 4096)
	for {
		unix.Write(1, fmt.Appendln(nil, answer))
		n, err := unix.Read(0, buf)
		if n <= 0 || err != nil {
			return
		}
		words := strings.SplitN(strings.TrimSpace(string(buf[:n])), "\t", 3)
		count, _ := strconv.Atoi(words[1])
		done, err := jobs()[words[0]](count, words[2])
		if answer = done; err != nil {
			answer = err
		}
	}
}

// newLoad starts a load whose jobs use the place.
func newLoad(t testing.TB, place string) *load {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	// Signals that preempt goroutines would interrupt what the load waits for.
	cmd.Env = append(os.Environ(), loadEnv+"=1", "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	l := &load{cmd, in, bufio.NewReader(out), cmd.Process.Pid, place}
	l.end(t)
	return l
}

// do executes a job and returns how often it happened.
func (l *load) do(t testing.TB, job string, n int) int {
	t.Helper()
	l.begin(t, job, n)
	return l.end(t)
}

func (l *load) begin(t testing.TB, job string, n int) {
	t.Helper()
	if _, err := fmt.Fprintf(l.in, "%s\t%d\t%s\n", job, n, l.place); err != nil {
		t.Fatal(err)
	}
}

// end waits until the load blocks in read(2) again.
func (l *load) end(t testing.TB) int {
	t.Helper()
	line, err := l.out.ReadString('\n')
	n, failed := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || failed != nil {
		t.Fatalf("load returned %q: %v", line, err)
	}
	resting := fmt.Sprintf("%d 0x0 ", unix.SYS_READ)
	for !strings.HasPrefix(l.read(t, "syscall"), resting) {
		runtime.Gosched()
	}
	return n
}

func (l *load) read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/%s", l.pid, l.pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// leaving is a way in which a thread stops running on a CPU.
type leaving int

const (
	notAtAll leaving = iota
	inAnyWay
	toSleep
)

// left counts how often the load's thread has left a CPU in that way, from the kernel's counters of
// context switches.
func (l *load) left(t testing.TB, how leaving) (n int) {
	t.Helper()
	for line := range strings.Lines(l.read(t, "status")) {
		var switches int
		fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &switches)
		if switches == 0 && how == inAnyWay {
			fmt.Sscanf(line, "nonvoluntary_ctxt_switches: %d", &switches)
		}
		n += switches
	}
	return n
}
