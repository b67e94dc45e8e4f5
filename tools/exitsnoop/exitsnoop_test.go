package exitsnoop

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// helper tells a child of the test how to exit.
const helper = "CORESCOPE_EXIT"

func TestMain(m *testing.M) {
	if how := os.Getenv(helper); how != "" {
		end(how)
		os.Exit(99)
	}
	os.Exit(m.Run())
}

// end exits in one of several ways.
func end(how string) {
	runtime.LockOSThread()
	word, arg, _ := strings.Cut(how, " ")
	n, _ := strconv.Atoi(arg)
	switch word {
	case "code":
		unix.Exit(n)
	case "stdin": // exits when the test closes standard input
		os.Stdin.Read(make([]byte, 1))
		unix.Exit(n)
	case "signal":
		raise(syscall.Signal(n))
	case "leader": // the first thread exits with code 7, and later the process with another code
		if unix.Gettid() != unix.Getpid() {
			again(how)
		}
		go exitAfter(unix.Gettid(), n)
		unix.Syscall(unix.SYS_EXIT, 7, 0, 0)
	case "exec": // another thread executes a program, which exits
		done := make(chan bool)
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() != unix.Getpid() {
				again("code " + arg)
			}
			done <- true
		}()
		<-done
	case "crowd": // many threads exit at the same time
		started := make(chan bool)
		for range 30 {
			go func() {
				runtime.LockOSThread()
				started <- true
				select {}
			}()
			<-started
		}
		unix.Exit(n)
	}
}

// again executes this program with another helper word.
func again(how string) {
	os.Setenv(helper, how)
	err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	panic(err)
}

// exitAfter exits when the thread is a zombie.
func exitAfter(tid, code int) {
	for {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
		if strings.Contains(string(stat), ") Z ") {
			unix.Exit(code)
		}
		time.Sleep(time.Millisecond)
	}
}

// raise sends a signal to this process, with the default action.
func raise(sig syscall.Signal) {
	var defaults [4]uint64
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&defaults)), 0, 8, 0, 0)
	unix.Kill(unix.Getpid(), sig)
	select {}
}

func child(how string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"="+how)
	return cmd
}

// ends runs a child, and returns its PID and the status that wait(2) returns.
func ends(t *testing.T, how string) (int, syscall.WaitStatus) {
	t.Helper()
	cmd := child(how)
	cmd.Dir = t.TempDir() // for a core dump
	_ = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("child %q did not start", how)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.ExitStatus() == 99 {
		t.Errorf("child %q did not exit as it should", how)
	}
	return cmd.Process.Pid, status
}

// children selects the children of this process.
func children() []string { return []string{"--filter", fmt.Sprintf("ppid == %d", os.Getpid())} }

// allowCore allows core dumps of children, if they are written to the current directory.
func allowCore(t *testing.T) {
	t.Helper()
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	if name := strings.TrimSpace(string(pattern)); name == "" || strings.ContainsAny(name, "/|") {
		t.Logf("core dumps are not tested: core_pattern is %q", name)
		return
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: old.Max, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &old) })
}

// TestStatus compares each way to exit with the status that wait(2) returns: one row per process.
func TestStatus(t *testing.T) {
	tooltest.Root(t)
	allowCore(t)
	ways := []string{"code 0", "code 3", "code 255", "signal 9", "signal 15", "signal 6", "signal 34", "leader 5", "leader 0", "exec 4"}
	for range 20 {
		ways = append(ways, "crowd 6")
	}
	type result struct {
		how    string
		pid    int
		status syscall.WaitStatus
	}
	var want []result
	res := tooltest.JSON(t, Tool, children(), func() {
		for _, how := range ways {
			pid, status := ends(t, how)
			want = append(want, result{how, pid, status})
		}
	})
	if tooltest.Lost(res.Summary) != 0 {
		t.Errorf("summary: %v", res.Summary)
	}
	for _, w := range want {
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == w.pid })
		if len(rows) != 1 {
			t.Errorf("%s: %d rows, want 1: %v", w.how, len(rows), rows)
			continue
		}
		r := rows[0]
		if w.status.Exited() != r.Has("exit_code") || w.status.Signaled() != r.Has("sig") || w.status.Signaled() != r.Has("signal") {
			t.Errorf("%s: %v", w.how, r)
		}
		if w.status.Exited() && int(r.Num("exit_code")) != w.status.ExitStatus() {
			t.Errorf("%s: exit code %v, want %d", w.how, r["exit_code"], w.status.ExitStatus())
		}
		if w.status.Signaled() && int(r.Num("sig")) != int(w.status.Signal()) {
			t.Errorf("%s: signal %v, want %d", w.how, r["sig"], w.status.Signal())
		}
		if r["core_dumped"] != w.status.CoreDump() {
			t.Errorf("%s: core_dumped %v, want %v", w.how, r["core_dumped"], w.status.CoreDump())
		}
		if r.Num("tid") != r.Num("pid") || r.Str("comm") != "exe" {
			t.Errorf("%s: not the leader: %v", w.how, r)
		}
	}
}

// TestThreads expects the exit code of the first thread, and those of the others.
func TestThreads(t *testing.T) {
	var pid int
	res := tooltest.JSON(t, Tool, append(children(), "-T"), func() { pid, _ = ends(t, "leader 5") })
	codes := map[float64]int{}
	for _, r := range res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == pid }) {
		if first := r.Num("tid") == r.Num("pid"); first != (r.Num("exit_code") == 7) {
			t.Errorf("wrong exit code: %v", r)
		}
		codes[r.Num("exit_code")]++
	}
	if codes[7] != 1 || codes[5] < 2 || len(codes) != 2 {
		t.Errorf("number of threads by exit code: %v, want one with 7 and several with 5", codes)
	}
}

func TestAge(t *testing.T) {
	var least, most time.Duration
	var pid int
	res := tooltest.JSON(t, Tool, children(), func() {
		cmd := child("stdin 1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		alive := time.Now()
		time.Sleep(20 * time.Millisecond)
		least = time.Since(alive)
		in.Close()
		_ = cmd.Wait()
		most, pid = time.Since(before), cmd.Process.Pid
	})
	rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == pid })
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(rows), rows)
	}
	if age := time.Duration(rows[0].Num("age_ns")); age < least || age > most {
		t.Errorf("age %v, want %v to %v", age, least, most)
	}
}

func TestFailed(t *testing.T) {
	res := tooltest.JSON(t, Tool, append(children(), "-x", "--label", "web"), func() {
		ends(t, "code 0")
		ends(t, "code 2")
		ends(t, "signal 9")
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, r.Str("result"))
		if r.Str("label") != "web" {
			t.Errorf("label: %v", r)
		}
	}
	if fmt.Sprint(got) != "[code 2 signal 9 (SIGKILL)]" {
		t.Errorf("got %q", got)
	}
}

// TestUTC compares the time in UTC with the other time of the row, and the default label.
func TestUTC(t *testing.T) {
	res := tooltest.JSON(t, Tool, append(children(), "--utc", "--label="), func() { ends(t, "code 4") })
	for _, r := range res.Events {
		at, err := time.Parse(time.RFC3339Nano, r.Str("time_utc"))
		if other, _ := time.Parse(time.RFC3339Nano, r.Str("time")); err != nil || !at.Equal(other) || !strings.HasSuffix(r.Str("time_utc"), "Z") || r.Str("label") != "exit" {
			t.Errorf("row %v: %v", r, err)
		}
	}
	if len(res.Events) != 1 {
		t.Errorf("rows %v, want one", res.Events)
	}
	for _, tt := range []struct {
		args   []string
		header string
	}{
		{[]string{"--utc"}, "TIME-UTC PCOMM"},
		{[]string{"-t", "--utc"}, "TIME-UTC PCOMM"},
		{[]string{"--columns", "time_utc,comm"}, "TIME-UTC PCOMM"},
	} {
		before := time.Now().UTC().Truncate(time.Millisecond)
		text := tooltest.Text(t, Tool, append(children(), tt.args...), func() { ends(t, "code 4") })
		header, row, _ := strings.Cut(text, "\n")
		if got := strings.Join(strings.Fields(header), " "); !strings.HasPrefix(got, tt.header) {
			t.Errorf("%q: header %q, want %q", tt.args, got, tt.header)
		}
		at, err := time.Parse(time.DateOnly+" 15:04:05.000", before.Format(time.DateOnly)+" "+strings.Fields(row + " -")[0])
		if at.Before(before.Add(-time.Minute)) { // after midnight
			at = at.Add(24 * time.Hour)
		}
		if err != nil || at.Before(before.Add(-time.Second)) || at.After(time.Now().UTC().Add(time.Second)) {
			t.Errorf("%q: row %q at %v: %v", tt.args, row, before, err)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	var pid int
	text := tooltest.Text(t, Tool, append(children(), "-t"), func() { pid, _ = ends(t, "code 3") })
	lines := strings.Split(text, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PCOMM PID PPID TID AGE(s) EXIT_CODE" {
		t.Errorf("header is %q", got)
	}
	fields := strings.Fields(lines[1])
	if len(fields) != 8 || fields[1] != "exe" || fields[2] != strconv.Itoa(pid) || fields[4] != fields[2] || fields[6] != "code" || fields[7] != "3" {
		t.Errorf("row is %q", lines[1])
	}
}
