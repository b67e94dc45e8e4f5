package syscount

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// madeEnv makes the test binary create directories in this one.
const madeEnv = "CORESCOPE_MADE"

func TestMain(m *testing.M) {
	if name := os.Getenv(actEnv); name != "" {
		act(name)
		return
	}
	if dir := os.Getenv(madeEnv); dir != "" {
		for _, name := range []string{"a", "b", "c"} {
			unix.Mkdir(dir+"/"+name, 0o700)
		}
		return
	}
	os.Exit(m.Run())
}

func self() string { return strconv.Itoa(os.Getpid()) }

// call makes n calls of getppid on each of several threads.
func call(threads, n int) {
	var done sync.WaitGroup
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			for range n {
				unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
			}
		})
	}
	done.Wait()
}

// sum sums a column over the rows of a system call.
func sum(rows []tooltest.Row, syscall, key string) (n float64) {
	for _, r := range rows {
		if r.Str("syscall") == syscall {
			n += r.Num(key)
		}
	}
	return n
}

func TestEachCallCountsOnce(t *testing.T) {
	const threads, n = 4, 50000
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() { call(threads, n) })
	tooltest.CheckTotal(t, res.Summary, int(sum(res.Rows, "getppid", "count")), threads*n)
}

// TestIntervalsAddUp checks that each call is in exactly one interval while calls go on.
func TestIntervalsAddUp(t *testing.T) {
	const threads, n = 4, 50000
	all := 0
	args := []string{"--pid", self(), "--syscall", "getppid", "-i", "5ms"}
	res := tooltest.JSONReports(t, Tool, args, func(reports func() int) {
		for reports() < 3 && t.Context().Err() == nil {
			call(threads, n)
			all += threads * n
		}
	})
	tooltest.CheckTotal(t, res.Summary, int(sum(res.Rows, "getppid", "count")), all)
	last := ""
	for _, r := range res.Rows {
		if r.Str("time") <= last || r.Num("interval_ns") < 1e6 {
			t.Errorf("interval of %v ns at %s, after %s", r.Num("interval_ns"), r.Str("time"), last)
		}
		last = r.Str("time")
	}
}

func TestLatency(t *testing.T) {
	const n, pause = 5, 20 * time.Millisecond
	res := tooltest.JSON(t, Tool, []string{"-L", "--pid", self(), "--syscall", "nanosleep"}, func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range n {
			span := unix.NsecToTimespec(int64(pause))
			for unix.Nanosleep(&span, &span) == unix.EINTR {
			}
		}
	})
	// Threads of the Go runtime sleep for some microseconds from time to time.
	r := res.Rows[0]
	if r.Num("count") < n || r.Num("total_ns") < n*float64(pause) || r.Num("total_ns") > 20*n*float64(pause) {
		t.Errorf("%v, want %d of %v", r, n, pause)
	}
	if r.Num("avg_ns") != float64(int64(r.Num("total_ns"))/int64(r.Num("count"))) {
		t.Errorf("wrong mean: %v", r)
	}
}

func TestErrors(t *testing.T) {
	load := func() {
		for range 30 {
			unix.Access("/", unix.F_OK)
			unix.Access("/none", unix.F_OK)
			unix.Access("/dev/null/none", unix.F_OK)
		}
	}
	access := "faccessat"
	for _, tt := range []struct {
		args          []string
		count, errors float64
	}{
		{nil, 90, 60},
		{[]string{"-x"}, 60, 60},
		{[]string{"-e", "ENOENT"}, 30, 30},
		{[]string{"-e", strconv.Itoa(int(unix.ENOTDIR))}, 30, 30},
		{[]string{"-e", "eperm"}, 0, 0},
	} {
		res := tooltest.JSON(t, Tool, append(tt.args, "--pid", self()), load)
		if count, errors := sum(res.Rows, access, "count"), sum(res.Rows, access, "errors"); count != tt.count || errors != tt.errors {
			t.Errorf("%q: %v calls, %v errors, want %v, %v", tt.args, count, errors, tt.count, tt.errors)
		}
	}
}

func TestProcesses(t *testing.T) {
	var pid int
	res := tooltest.JSON(t, Tool, []string{"-P", "--ppid", self(), "--syscall", "getcwd"}, func() {
		cmd := exec.Command("sh", "-c", "exec /bin/pwd -P")
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		pid = cmd.Process.Pid
		unix.Getcwd(make([]byte, 100)) // not in a child
	})
	if len(res.Rows) == 0 {
		t.Fatal("no rows")
	}
	last := res.Rows[len(res.Rows)-1]
	for _, r := range res.Rows {
		if r.Num("pid") != float64(pid) || r.Has("syscall") || r.Num("count") < 1 {
			t.Errorf("row %v, want some of process %d", r, pid)
		}
	}
	if names := last.Str("comm"); names != "pwd" && names != "sh" {
		t.Errorf("comm %q", names)
	}
}

// TestForkCountsOnce checks fork, which returns in both processes.
func TestForkCountsOnce(t *testing.T) {
	const n = 20
	forks := func(rows []tooltest.Row) (sum float64) {
		for _, r := range rows {
			switch r.Str("syscall") {
			case "clone", "clone3", "fork", "vfork":
				sum += r.Num("count")
			}
		}
		return sum
	}
	script := "for i in $(seq 1 " + strconv.Itoa(n) + "); do (:); done"
	res := tooltest.JSON(t, Tool, []string{"--comm", "forks"}, func() {
		cmd := exec.Command("sh", "-c", "echo -n forks >/proc/self/comm; "+script)
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	// One more for seq itself.
	if got := forks(res.Rows); got != n+1 {
		t.Errorf("%v forks, want %d: %v", got, n+1, res.Rows)
	}
}

func TestCompat(t *testing.T) {
	const n = 7
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		var code []byte
		for range n {
			code = append(code, tooltest.Call386(64)...) // getppid
		}
		return append(code, tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386", "--syscall", "getppid"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	if len(res.Rows) != 1 || res.Rows[0].Str("abi") != "compat" || res.Rows[0].Num("count") != n {
		t.Errorf("rows %v, want %d of getppid", res.Rows, n)
	}
}

func TestCgroups(t *testing.T) {
	dir := tooltest.Cgroup(t, "cgroup2", "corescope-syscount")
	res := tooltest.JSON(t, Tool, []string{"--cgroups", "--syscalls", "--cgroup", dir}, func() {
		cmd := tooltest.InCgroup(dir, "/bin/pwd")
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	if sum(res.Rows, "getcwd", "count") != 1 {
		t.Errorf("rows %v, want one getcwd", res.Rows)
	}
	for _, r := range res.Rows {
		if r.Str("cgroup") != "/corescope-syscount" {
			t.Errorf("row %v", r)
		}
	}
}

func TestText(t *testing.T) {
	out := tooltest.Text(t, Tool, []string{"--pid", self(), "--syscall", "getppid"}, func() { call(1, 12345) })
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || lines[1] != "SYSCALL                     COUNT" || lines[2] != "getppid                     12345" {
		t.Errorf("%q", lines)
	}
	out = tooltest.Text(t, Tool, []string{"--pid", self(), "-T", "2", "--sort", "+count"}, func() { call(1, 12345) })
	if lines := strings.Split(out, "\n"); len(lines) != 6 || strings.HasPrefix(lines[2], "getppid") || !strings.Contains(lines[0], " (2 of ") {
		t.Errorf("%q", lines)
	}
	out = tooltest.Text(t, Tool, []string{"--pid", self(), "--output", "csv", "--columns", "syscall,count"}, func() { call(1, 12345) })
	if !strings.HasPrefix(out, "syscall,count\n") || !strings.Contains(out, "\ngetppid,12345\n") {
		t.Errorf("%q", out)
	}
	out = tooltest.Text(t, Tool, []string{"--list"}, func() {})
	if !strings.Contains(out, "\ngetppid\n") || !strings.HasPrefix(out, "_") && !strings.HasPrefix(out, "a") {
		t.Errorf("%.80q", out)
	}
}

func usage(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := tool.Run(t.Context(), Tool, args, &out, &out)
	return out.String(), code
}
