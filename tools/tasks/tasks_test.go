package tasks

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// The test binary starts itself as the process that the tool lists.
const asChild = "TASKS_TEST_CHILD"

const (
	childThreads = 7
	childMemory  = 64 << 20
	childCPU     = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	switch os.Getenv(asChild) {
	case "":
	case withoutFirstThread:
		childWithoutFirstThread()
	default:
		child()
	}
	os.Exit(m.Run())
}

// child uses memory and CPU time, half of the latter in a thread that exits. Then it prints a line,
// and waits with several threads until the end of its input.
func child() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 5)
	memory := make([]byte, childMemory)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	burn(childCPU / 2)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		burn(childCPU / 2)
	}()
	<-ended
	started := make(chan bool)
	for range childThreads {
		go func() {
			runtime.LockOSThread()
			started <- true
			select {}
		}()
		<-started
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(memory)
	os.Exit(0)
}

// burn uses this CPU time in the current thread.
func burn(d time.Duration) {
	now := func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
		return time.Duration(ts.Nano())
	}
	for start := now(); now()-start < d; {
	}
}

// start returns the PID of a child that waits.
func start(t *testing.T) int { return startAs(t, "1") }

func startAs(t *testing.T, kind string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "an argument", "with \n")
	cmd.Env = append(os.Environ(), asChild+"="+kind, "GODEBUG=asyncpreemptoff=1", "GOGC=off")
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
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("child printed %q: %v", line, err)
	}
	return cmd.Process.Pid
}

// stat returns the fields of /proc/PID/stat from the state on, which is field 3 in proc(5); nil if
// the process has exited.
func stat(path string) []string {
	b, err := os.ReadFile(path + "/stat")
	if err != nil {
		return nil
	}
	text := string(b)
	return append([]string{"", "", ""}, strings.Fields(text[strings.LastIndexByte(text, ')')+1:])...)
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processes returns the start times of the processes in /proc, by ID. Some machines hide processes
// from root, in /proc and from BPF programs.
func processes(t *testing.T) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields := stat("/proc/" + e.Name())
		_, err = os.Readlink("/proc/" + e.Name() + "/ns/pid")
		if fields != nil && !os.IsPermission(err) {
			all[pid] = fields[22]
		}
	}
	return all
}

// TestEveryProcess checks that each process that exists before and after is listed once, with
// parent, start time and nice value as in /proc.
func TestEveryProcess(t *testing.T) {
	tooltest.Root(t)
	before := processes(t)
	res := tooltest.JSON(t, Tool, nil, nil)
	after := processes(t)
	rows := map[int][]tooltest.Row{}
	for _, row := range res.Events {
		rows[int(row.Num("pid"))] = append(rows[int(row.Num("pid"))], row)
	}
	for pid, list := range rows {
		if len(list) != 1 {
			t.Errorf("process %d is listed %d times: %v", pid, len(list), list)
		}
	}
	lived := 0
	for pid, started := range before {
		if after[pid] != started {
			continue
		}
		lived++
		if rows[pid] == nil {
			t.Errorf("process %d is not listed", pid)
			continue
		}
		check(t, rows[pid][0], pid)
	}
	if lived < 2 || res.Summary.Num("lost") != 0 || int(res.Summary.Num("events")) != len(res.Events) {
		t.Errorf("%d processes existed throughout, %d rows, summary %v", lived, len(res.Events), res.Summary)
	}
}

func check(t *testing.T, row tooltest.Row, pid int) {
	t.Helper()
	fields := stat(fmt.Sprintf("/proc/%d", pid))
	if fields == nil {
		return
	}
	// The start time is counted in ticks of 10 ms since boot.
	started, err := time.Parse(time.RFC3339Nano, row.Str("start"))
	var boot, wall unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	ticks := float64(started.UnixNano()-(wall.Nano()-boot.Nano())) / 1e7
	if err != nil || math.Abs(ticks-number(t, fields[22])) > 5 {
		t.Errorf("process %d started at %q (%v), tick %.1f, want %s", pid, row.Str("start"), err, ticks, fields[22])
	}
	for key, want := range map[string]string{"ppid": fields[4], "nice": fields[19], "rt_priority": fields[40]} {
		if row.Num(key) != number(t, want) {
			t.Errorf("process %d: %s is %v, want %s", pid, key, row[key], want)
		}
	}
}

// In a child PID namespace, --pid has IDs of that namespace, and arguments are read from its /proc.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	pid := start(t)
	rows := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(pid), "--columns", "+args"}, nil).Events
	if len(rows) != 1 || int(rows[0].Num("ns_pid")) != pid || int(rows[0].Num("pid")) == pid {
		t.Fatalf("rows are %v, want one with ns_pid %d and another pid", rows, pid)
	}
	if args := rows[0].List("args"); len(args) != 3 || args[2] != "with \n" {
		t.Errorf("arguments are %q", args)
	}
}

func TestProcess(t *testing.T) {
	tooltest.Root(t)
	pid := start(t)
	before := stat(fmt.Sprintf("/proc/%d", pid)) // its Go runtime can go on
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(pid), "--columns", "+args"}, nil)
	if len(res.Events) != 1 {
		t.Fatalf("rows are %v, want one", res.Events)
	}
	row := res.Events[0]
	fields := stat(fmt.Sprintf("/proc/%d", pid))
	for key, want := range map[string]any{
		"ppid": float64(os.Getpid()), "nice": 5.0, "policy": "other", "state": "S", "kernel": false,
		"threads": number(t, fields[20]), "virtual_bytes": number(t, fields[23]), "tid": float64(pid),
	} {
		if row[key] != want {
			t.Errorf("%s is %v, want %v", key, row[key], want)
		}
	}
	if args := row.List("args"); len(args) != 3 || args[2] != "with \n" {
		t.Errorf("arguments are %q", args)
	}
	if got, want := row.Num("rss_bytes"), resident(t, pid); math.Abs(got-want) > 2<<20 || got < childMemory {
		t.Errorf("memory is %v, want %v", got, want)
	}
	cpu := row.Num("cpu_ns")
	ticks := (number(t, fields[14]) + number(t, fields[15])) * 1e7
	if cpu < float64(childCPU) || math.Abs(cpu-ticks) > 4e7 || row.Num("user_ns")+row.Num("system_ns") != cpu {
		t.Errorf("CPU time is %v, %v user and %v system, want %v", cpu, row["user_ns"], row["system_ns"], ticks)
	}
	if faults := row.Num("minor_faults"); faults < number(t, before[10]) || faults > number(t, fields[10]) || faults < childMemory/4096/512 {
		t.Errorf("%v faults, want %s to %s", faults, before[10], fields[10])
	}
}

// resident returns the resident memory that the kernel computes page by page.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Rss:"); ok {
			return 1024 * number(t, strings.Fields(rest)[0])
		}
	}
	t.Fatalf("no Rss in %q", b)
	return 0
}

// TestThreads checks that each thread is listed once, with its own resource usage.
func TestThreads(t *testing.T) {
	tooltest.Root(t)
	pid := start(t)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-T", "-p", strconv.Itoa(pid)}, nil)
	var cpu float64
	seen := map[string]int{}
	for _, row := range res.Events {
		seen[strconv.Itoa(int(row.Num("tid")))]++
		if int(row.Num("tid")) == pid {
			cpu = row.Num("cpu_ns")
		}
	}
	for _, e := range entries {
		if seen[e.Name()] != 1 {
			t.Errorf("thread %s is listed %d times", e.Name(), seen[e.Name()])
		}
	}
	if len(res.Events) != len(seen) || len(seen) <= childThreads {
		t.Errorf("%d threads in %d rows, want %d", len(seen), len(res.Events), len(entries))
	}
	// The thread that has exited is not included in the thread-group leader.
	fields := stat(fmt.Sprintf("/proc/%d/task/%d", pid, pid))
	ticks := (number(t, fields[14]) + number(t, fields[15])) * 1e7
	if cpu < float64(childCPU/2) || math.Abs(cpu-ticks) > 4e7 {
		t.Errorf("CPU time of the thread-group leader is %v, want %v", cpu, ticks)
	}
}

// A thread is not a row without -T, which the error says.
func TestThreadNeedsThreads(t *testing.T) {
	tid := make(chan int)
	end := make(chan bool)
	defer close(end)
	for range 2 { // one of them can be the thread-group leader
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			<-end
		}()
	}
	thread := max(<-tid, <-tid)
	if thread == os.Getpid() {
		t.Fatalf("thread %d is the thread-group leader", thread)
	}
	want := fmt.Sprintf("usage: --tid %d: it is a thread of process %d, which is not a row of its own without --threads: add -T", thread, os.Getpid())
	var out, errOut bytes.Buffer
	code := tool.Run(t.Context(), Tool, []string{"--tid", strconv.Itoa(thread)}, &out, &errOut)
	if code != tool.ExitUsage || !strings.Contains(errOut.String(), want) || out.Len() > 0 {
		t.Errorf("exit code %d, %q, want 2 and %q", code, &errOut, want)
	}
	res := tooltest.JSON(t, Tool, []string{"-T", "--tid", strconv.Itoa(thread)}, nil)
	if len(res.Events) != 1 || res.Events[0].Num("tid") != float64(thread) {
		t.Errorf("rows %v, want thread %d", res.Events, thread)
	}
}

// TestZombie checks that a process is listed after its exit until its parent waits for it.
func TestZombie(t *testing.T) {
	tooltest.Root(t)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"x", "-test.run=^$"}, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(pid)}, nil)
	if len(res.Events) != 1 || res.Events[0].Str("state") != "Z" || res.Events[0].Num("rss_bytes") != 0 {
		t.Errorf("rows are %v, want one in state Z", res.Events)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
}

// TestComingAndGoing checks that tasks that start and exit during the run cause no error, and that
// the other tasks are listed.
func TestComingAndGoing(t *testing.T) {
	tooltest.Root(t)
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command("/proc/self/exe", "-test.run=^$").Run()
			}
		}
	}()
	for range 5 {
		res := tooltest.JSON(t, Tool, nil, nil)
		mine := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == os.Getpid() })
		if len(mine) != 1 {
			t.Errorf("rows of this process are %v", mine)
		}
	}
	close(stop)
	<-done
}

func TestText(t *testing.T) {
	out := tooltest.Text(t, Tool, []string{"-p", strconv.Itoa(os.Getpid()), "--columns", "pid,ppid,comm"}, nil)
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "PID PPID COMM" {
		t.Fatalf("got %q", out)
	}
	if fields := strings.Fields(lines[1]); fields[0] != strconv.Itoa(os.Getpid()) || fields[1] != strconv.Itoa(os.Getppid()) {
		t.Errorf("row is %q", lines[1])
	}
}

// TestNoReadyLine checks that a list is not announced by the line "ready: …": its rows follow at once.
func TestNoReadyLine(t *testing.T) {
	tooltest.Root(t)
	var out, errOut bytes.Buffer
	if code := tool.Run(t.Context(), Tool, []string{"-p", strconv.Itoa(os.Getpid())}, &out, &errOut); code != tool.ExitOK || strings.Contains(errOut.String(), "ready") || out.Len() == 0 {
		t.Errorf("exit code %d, messages %q, output:\n%s", code, &errOut, &out)
	}
}

func TestCSV(t *testing.T) {
	out := tooltest.Text(t, Tool, []string{"--output", "csv", "--limit", "3", "--columns", "pid,threads", "--filter", "!kernel"}, nil)
	lines := strings.Split(out, "\n")
	if len(lines) != 5 || lines[0] != "pid,threads" {
		t.Errorf("got %q, want a header and three rows", out)
	}
}
