package oomkill

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// eatEnv makes the test binary fill this number of bytes, and then wait for the end of its input.
const eatEnv = "CORESCOPE_EAT"

func TestMain(m *testing.M) {
	size, err := strconv.Atoi(os.Getenv(eatEnv))
	if err != nil {
		os.Exit(m.Run())
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	for at := 0; at < size; at += os.Getpagesize() {
		memory[at] = 1
	}
	fmt.Println("full")
	io.Copy(io.Discard, os.Stdin)
}

const limit = 96 << 20

// eater is a process in the cgroup that fills memory.
type eater struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func eat(t *testing.T, dir string, size int) *eater {
	t.Helper()
	cmd := tooltest.InCgroup(dir, os.Args[0])
	cmd.Env = append(os.Environ(), eatEnv+"="+strconv.Itoa(size))
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
	return &eater{cmd, in, bufio.NewScanner(out)}
}

// killed waits for the end of the process, and reports whether SIGKILL ended it.
func (e *eater) killed() bool {
	e.Wait()
	status := e.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == unix.SIGKILL
}

// kills returns the kernel's own count of OOM kills in the cgroup.
func kills(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		for line := range bytes.Lines(text) {
			if n, ok := strings.CutPrefix(string(line), "oom_kill "); ok {
				return strings.TrimSpace(n)
			}
		}
	}
	return "?"
}

func check(t *testing.T, r tooltest.Row, want map[string]any) {
	t.Helper()
	for key, v := range want {
		if r[key] != v {
			t.Errorf("%s is %v, want %v", key, r[key], v)
		}
	}
}

func of(res *tooltest.Result, pid int) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == pid })
}

// knowsCgroup reports whether the kernel provides the cgroup that ran out of memory: in the
// argument of a function, or in members that exist with CONFIG_MEMCG_V1.
func knowsCgroup(t *testing.T, res *tooltest.Result) bool {
	for _, hook := range res.Ready.List("hooks") {
		if strings.HasPrefix(hook, "oom: ") {
			return true
		}
	}
	return tooltest.HasMember(t, "mem_cgroup", "oom_lock")
}

// TestSelf makes a process exceed the limit of its cgroup, so that it is killed itself.
func TestSelf(t *testing.T) {
	dir, path := tooltest.MemoryCgroup(t, "corescope-oom-self", limit)
	var e *eater
	// The filter also selects the hierarchy that cgroups are named by.
	res := tooltest.JSON(t, Tool, []string{"--cgroup", dir}, func() {
		e = eat(t, dir, 2*limit)
		e.in.Close()
		if !e.killed() {
			t.Errorf("process ended with %v, want SIGKILL", e.ProcessState)
		}
	})
	rows := of(res, e.Process.Pid)
	if n := kills(t, dir); len(rows) != 1 || n != "1" {
		t.Fatalf("%d rows of process %d, the kernel counts %s kills: %v", len(rows), e.Process.Pid, n, res.Events)
	}
	r := rows[0]
	comm := filepath.Base(os.Args[0])
	comm = comm[:min(len(comm), 15)]
	pid := float64(e.Process.Pid)
	check(t, r, map[string]any{
		"trigger_pid": pid, "comm": comm, "uid": 0., "trigger_uid": 0., "killed": true,
		"cgroup": path, "trigger_cgroup": path, "container": nil, "trigger_container": nil, "oom_score_adj": score(t),
	})
	if knowsCgroup(t, res) {
		check(t, r, map[string]any{"constraint": "memcg", "oom_cgroup": path, "limit_bytes": float64(limit)})
	}
	if anon := r.Num("anon_rss_bytes"); anon > limit || anon < limit/2 {
		t.Errorf("anonymous memory is %v, want less than the limit of %d and more than half of it", anon, limit)
	}
	if total := r.Num("total_vm_bytes"); total < 2*limit {
		t.Errorf("virtual memory is %v, want at least %d", total, 2*limit)
	}
	if pages := r["pages"]; pages != nil && pages.(float64) < limit/float64(os.Getpagesize()) {
		t.Errorf("%v pages, want at least those of the limit", pages)
	}
	if len(strings.Fields(r.Str("loadavg"))) != 5 {
		t.Errorf("load averages %q", r["loadavg"])
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

func score(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOther makes a process in a nested cgroup trigger the kill of another one, in a sibling, by the
// limit of the parent.
func TestOther(t *testing.T) {
	dir, path := tooltest.MemoryCgroup(t, "corescope-oom-other", limit)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(d) })
	}
	var victim, trigger *eater
	res := tooltest.JSON(t, Tool, []string{"--cgroup", dir}, func() {
		victim = eat(t, a, limit*6/10)
		if !victim.out.Scan() {
			t.Error("victim has not filled its memory")
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", victim.Process.Pid), []byte("1000"), 0); err != nil {
			t.Error(err)
		}
		trigger = eat(t, b, limit*6/10)
		trigger.out.Scan() // fails if the trigger is killed too, before the victim's memory is free
		trigger.in.Close()
		trigger.Wait()
		victim.in.Close() // ends it if it was not killed
		if !victim.killed() {
			t.Errorf("victim ended with %v", victim.ProcessState)
		}
	})
	rows := of(res, victim.Process.Pid)
	n := kills(t, a)
	all := len(rows)
	if n == "?" { // the memory controller is not enabled in the nested cgroups: the parent counts both
		n, all = kills(t, dir), len(rows)+len(of(res, trigger.Process.Pid))
	}
	if len(rows) != 1 || n != strconv.Itoa(all) {
		t.Fatalf("%d rows of process %d, %d rows in all, the kernel counts %s kills: %v", len(rows), victim.Process.Pid, all, n, res.Events)
	}
	r := rows[0]
	check(t, r, map[string]any{
		"trigger_pid": float64(trigger.Process.Pid), "oom_score_adj": 1000., "killed": true,
		"cgroup": path + "/a", "trigger_cgroup": path + "/b",
	})
	if knowsCgroup(t, res) {
		check(t, r, map[string]any{"constraint": "memcg", "oom_cgroup": path, "limit_bytes": float64(limit)})
	}
	if anon := r.Num("anon_rss_bytes"); anon < limit*6/10 {
		t.Errorf("anonymous memory is %v, want at least %d", anon, limit*6/10)
	}
}

// TestFilter checks that filters apply to the victim.
func TestFilter(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir, _ := tooltest.MemoryCgroup(t, "corescope-oom-filter", limit)
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 1}, {[]string{"--cgroup", dir}, 1}, {[]string{"--comm", "other"}, 0}} {
		pid := 0
		res := tooltest.JSON(t, Tool, c.args, func() {
			e := eat(t, dir, 2*limit)
			e.in.Close()
			e.killed()
			pid = e.Process.Pid
		})
		if rows := of(res, pid); len(rows) != c.want {
			t.Errorf("%q: rows %v, want %d", c.args, rows, c.want)
		}
	}
}

// TestText checks the columns of text.
func TestText(t *testing.T) {
	dir, _ := tooltest.MemoryCgroup(t, "corescope-oom-text", limit)
	var e *eater
	out := tooltest.Text(t, Tool, nil, func() {
		e = eat(t, dir, 2*limit)
		e.in.Close()
		e.killed()
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME TRIG_PID TRIG_COMM PID COMM PAGES CONSTRAINT LIMIT(KB) LOADAVG" {
		t.Errorf("header %q", got)
	}
	if !strings.Contains(out, fmt.Sprintf(" %d ", e.Process.Pid)) {
		t.Errorf("process %d is missing in %q", e.Process.Pid, out)
	}
}
