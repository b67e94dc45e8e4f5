package execsnoop

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// children returns the filter flags for processes started by this one.
func children(more ...string) []string {
	return append([]string{"--ppid", strconv.Itoa(os.Getpid())}, more...)
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("run %.100q: %v: %s", cmd.Args, err, out)
	}
}

// argsOf returns the exact arguments of a row.
func argsOf(t *testing.T, r tooltest.Row) []string {
	t.Helper()
	if !r.Has("args_base64") {
		return r.List("args")
	}
	args := r.List("args_base64")
	for i, a := range args {
		b, err := base64.StdEncoding.DecodeString(a)
		if err != nil {
			t.Fatal(err)
		}
		args[i] = string(b)
	}
	return args
}

// dropped returns the number of events lost in the buffer. Other losses are caused by the kernel:
// if programs can be preempted (7.2), it skips a program that is running for another task.
func dropped(summary tooltest.Row) float64 {
	reasons := summary.Object("reasons")
	return reasons.Num("buffer_full") + reasons.Num("map_full")
}

func calls(file string) func(tooltest.Row) bool {
	return func(r tooltest.Row) bool { return r.Str("file") == file }
}

func resolved(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArguments(t *testing.T) {
	vectors := [][]string{
		{"true"},
		{""},
		{"", "", ""},
		{"true", "a b", "", "c  d ", ""},
		{"true", "line\nline", "tab\t", "\x1b[31mred", `quote"back\slash`, "\u202e\u2028é"},
		{"true", "\xff\xfe", "ok", "half\xc3"},
		append([]string{"many"}, strings.Split(strings.Repeat("x", 5000), "")...),
		append([]string{"160K"}, long(40, 4096)...),
		append([]string{"128K"}, long(1, 128<<10)...),
		append([]string{"1.9M"}, long(15, 128<<10)...),
	}
	target := program(t, "true")
	for _, flags := range tooltest.ArgVariants([]string{"--perf-buffer"}, []string{"--hook", "exec=raw"}) {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			var pids []int
			res := tooltest.JSON(t, Tool, children(flags...), func() {
				for _, argv := range vectors {
					cmd := &exec.Cmd{Path: target, Args: argv, Env: []string{}}
					run(t, cmd)
					pids = append(pids, cmd.Process.Pid)
				}
			})
			if len(res.Events) != len(vectors) || dropped(res.Summary) != 0 {
				t.Fatalf("%d rows of %d, %v", len(res.Events), len(vectors), res.Summary)
			}
			for i, r := range res.Events {
				if got := argsOf(t, r); !slices.Equal(got, vectors[i]) || r["args_truncated"] != false {
					t.Errorf("%.60q: got %d args: %.200q, %v", vectors[i], len(got), got, r["args_truncated"])
				}
				if int(r.Num("pid")) != pids[i] || r.Num("tid") != r.Num("pid") {
					t.Errorf("%.60q: pid %v, tid %v, want %d", vectors[i], r["pid"], r["tid"], pids[i])
				}
			}
		})
	}
}

func TestWhoAndWhere(t *testing.T) {
	target, dir := program(t, "true"), fmt.Sprintf("/proc/%d", os.Getpid())
	cmd := &exec.Cmd{Path: target, Args: []string{"other-name", "x"}, Dir: dir,
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321}}}
	before := time.Now()
	res := tooltest.JSON(t, Tool, children("--columns", "+cwd,cpu,command,elapsed_ns"), func() { run(t, cmd) })
	if len(res.Events) != 1 {
		t.Fatalf("%d rows: %v", len(res.Events), res.Events)
	}
	r := res.Events[0]
	self, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"pid": float64(cmd.Process.Pid), "ppid": float64(os.Getpid()), "uid": 54321., "comm": "true", "ret": 0.,
		"file": target, "exe": resolved(t, target), "cwd": dir, "interpreter": nil, "error": nil,
		"parent_comm": strings.TrimSpace(string(self)),
	} {
		if r[key] != want {
			t.Errorf("%s is %v, want %v", key, r[key], want)
		}
	}
	if got := r.List("command"); !slices.Equal(got, []string{target, "x"}) {
		t.Errorf("command is %q", got)
	}
	at, err := time.Parse(time.RFC3339Nano, r.Str("time"))
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("time is %v, %v; want a time after %v", at, err, before)
	}
	if ns := r.Num("age_ns"); ns <= 0 || ns > float64(time.Since(before)) {
		t.Errorf("age is %v ns, want at most %v", ns, time.Since(before))
	}
	if ns := r.Num("elapsed_ns"); ns <= 0 || ns > float64(time.Since(before)) {
		t.Errorf("elapsed is %v ns, want at most %v", ns, time.Since(before))
	}
}

// TestVariants calls exec by descriptor, relative to a directory, and from a thread that is not the
// leader.
func TestVariants(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	target := program(t, "true")
	for _, c := range []struct{ variant, file string }{
		{"fexecve", "/dev/fd/*"}, {"execveat", "/dev/fd/*/true"}, {"thread", target},
	} {
		t.Run(c.variant, func(t *testing.T) {
			cmd := by(t, c.variant, target, "by "+c.variant)
			res := tooltest.JSON(t, Tool, children(), func() { run(t, cmd) })
			if len(res.Events) != 2 {
				t.Fatalf("%d rows, want two, of the test binary and of its exec: %v", len(res.Events), res.Events)
			}
			r := res.Events[1]
			if ok, _ := filepath.Match(c.file, r.Str("file")); !ok || r.Str("exe") != resolved(t, target) {
				t.Errorf("file %q, exe %q", r["file"], r["exe"])
			}
			if pid := float64(cmd.Process.Pid); r.Num("pid") != pid || r.Num("tid") != pid {
				t.Errorf("pid %v, tid %v, want %v", r["pid"], r["tid"], pid)
			}
			if got := argsOf(t, r); !slices.Equal(got, []string{target, "by " + c.variant}) {
				t.Errorf("args %q", got)
			}
		})
	}
}

func TestScript(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh -e\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	load := func() { run(t, exec.Command(script, "a", "b c")) }
	res := tooltest.JSON(t, Tool, children(), load)
	if len(res.Events) != 1 {
		t.Fatalf("%d rows: %v", len(res.Events), res.Events)
	}
	r := res.Events[0]
	if r.Str("file") != script || r.Str("interpreter") != "/bin/sh" || r.Str("exe") != resolved(t, "/bin/sh") || r.Str("comm") != "script" {
		t.Errorf("row: %v", r)
	}
	if got, want := argsOf(t, r), []string{"/bin/sh", "-e", script, "a", "b c"}; !slices.Equal(got, want) {
		t.Errorf("args %q, want %q", got, want)
	}
	text := tooltest.Text(t, Tool, children("--no-header", "--columns", "command,interpreter"), load)
	if want := script + " a b c"; !strings.HasPrefix(text, want+" ") || !strings.HasSuffix(text, " /bin/sh\n") {
		t.Errorf("text %q, want %q", text, want)
	}
}

// TestBeyondLimits checks that truncated arguments are a prefix and marked as truncated.
func TestBeyondLimits(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	const n = 40 // 4,000 KiB
	target := program(t, "true")
	res := tooltest.JSON(t, Tool, children(), func() { run(t, by(t, "unlimited", target, strconv.Itoa(n))) })
	rows := res.Where(calls(target))
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	want := strings.Join(append([]string{target, strconv.Itoa(n)}, long(n, 100<<10)...), "\x00")
	got := strings.Join(argsOf(t, rows[0]), "\x00")
	if !strings.HasPrefix(want, got) || len(got) < 2<<20 || rows[0]["args_truncated"] != true {
		t.Errorf("%d bytes of %d, args_truncated %v", len(got), len(want), rows[0]["args_truncated"])
	}
}

func TestMaxArgs(t *testing.T) {
	tooltest.AnyAttachType(t)
	target := program(t, "true")
	for _, c := range []struct {
		max     string
		args    []string
		command string
		cut     bool
	}{
		{"1", []string{"true"}, target + " ...", true},
		{"2", []string{"true", "a"}, target + " a ...", true},
		{"3", []string{"true", "a", "b"}, target + " a b", false},
		{"60", []string{"true", "a", "b"}, target + " a b", false},
	} {
		load := func() { run(t, &exec.Cmd{Path: target, Args: []string{"true", "a", "b"}}) }
		r := tooltest.JSON(t, Tool, children("--max-args", c.max), load).Events[0]
		if got := argsOf(t, r); !slices.Equal(got, c.args) || r["args_truncated"] != c.cut {
			t.Errorf("--max-args %s: %q, %v", c.max, got, r["args_truncated"])
		}
		text := tooltest.Text(t, Tool, children("--max-args", c.max, "--columns", "command", "--no-header"), load)
		if text != c.command+"\n" {
			t.Errorf("--max-args %s: %q", c.max, text)
		}
	}
}

// TestSmallBuffer checks that an exec is shown without its arguments if they do not fit.
func TestSmallBuffer(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	target := program(t, "true")
	small := tool.Define(Tool.Spec, options{bufferBytes: os.Getpagesize()}, build)
	res := tooltest.JSON(t, small, children(), func() {
		run(t, &exec.Cmd{Path: target, Args: long(40, 4096)})
		run(t, &exec.Cmd{Path: target, Args: []string{"next"}})
	})
	if len(res.Events) != 2 || dropped(res.Summary) != 0 {
		t.Fatalf("%d rows, %v", len(res.Events), res.Summary)
	}
	if r := res.Events[0]; r["args_truncated"] != true || len(r.List("args")) != 0 || r.Has("file") || r.Str("comm") != "true" {
		t.Errorf("row without arguments: %v", r)
	}
	if r := res.Events[1]; r["args_truncated"] != false || r.Str("file") != target {
		t.Errorf("next row: %v", r)
	}
}

// TestAll executes programs as fast as two threads can, for a limited time, and expects a row for
// each.
func TestAll(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	most := 20000
	if testing.Short() {
		most = 500
	}
	target := program(t, "true")
	var n atomic.Int64
	var took time.Duration
	rows, summary := tooltest.File(t, Tool, children(), func() {
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for i := 0; i < most/2 && time.Since(start) < 20*time.Second; i++ {
					pid, err := syscall.ForkExec(target, []string{"true", "some", "arguments"}, nil)
					if err != nil {
						t.Error(err)
						return
					}
					unix.Wait4(pid, nil, 0, nil)
					n.Add(1)
				}
			})
		}
		wg.Wait()
		took = time.Since(start)
	})
	t.Logf("%d execs in %v: %d rows, %v lost", n.Load(), took, rows, summary["lost"])
	if rows+int(summary.Num("lost")) != int(n.Load()) || rows != int(summary.Num("events")) || dropped(summary) != 0 {
		t.Errorf("%d rows of %d, summary %v", rows, n.Load(), summary)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	target := program(t, "true")
	cmd := &exec.Cmd{Path: target, Args: []string{"true", "a b", "", "\x1b[2J", "\xff", `c\`}}
	got := tooltest.Text(t, Tool, children(), func() { run(t, cmd) })
	want := "PCOMM            PID    PPID   RET ARGS\n" +
		fmt.Sprintf("%-16s %-6d %-6d %3d %s\n", "true", cmd.Process.Pid, os.Getpid(), 0, target+` a b  \x1b[2J \xff c\\`)
	if got != want {
		t.Errorf("text is\n%swant\n%s", got, want)
	}
}

func TestTextFlags(t *testing.T) {
	tooltest.AnyAttachType(t)
	target := program(t, "true")
	cmd := &exec.Cmd{Path: target, Args: []string{"true", `a "b"`, "", "c\n"}}
	got := tooltest.Text(t, Tool, children("-T", "-t", "-U", "-C", "-M", "-q"), func() { run(t, cmd) })
	head, row, _ := strings.Cut(got, "\n")
	if want := "TIME     TIME(s)  UID    CPU PARENT           PCOMM            PID    PPID   RET ARGS"; head != want {
		t.Errorf("header is\n%s, want\n%s", head, want)
	}
	var clock string
	var elapsed float64
	var uid, cpu, pid int
	var parent, comm string
	if _, err := fmt.Sscan(row, &clock, &elapsed, &uid, &cpu, &parent, &comm, &pid); err != nil || pid != cmd.Process.Pid || comm != "true" {
		t.Errorf("row %q: %v", row, err)
	}
	if want := ` "` + target + `" "a \"b\"" "" "c\n"` + "\n"; !strings.HasSuffix(row, want) {
		t.Errorf("row %q, want suffix %q", row, want)
	}
}

func TestCSV(t *testing.T) {
	tooltest.AnyAttachType(t)
	target := program(t, "true")
	cmd := &exec.Cmd{Path: target, Args: []string{"true", `a,"b"`, "c\n"}}
	got := tooltest.Text(t, Tool, children("--output", "csv", "--columns", "pid,comm,ret,error,args,args_truncated,file"), func() { run(t, cmd) })
	want := "pid,comm,ret,error,args,args_truncated,file\n" +
		fmt.Sprintf(`%d,true,0,,"[""true"",""a,\""b\"""",""c\\n""]",false,%s`+"\n", cmd.Process.Pid, target)
	if got != want {
		t.Errorf("csv is\n%swant\n%s", got, want)
	}
}

// A program created with memfd_create has no directory: its path is its name, as in /proc/PID/exe.
func TestProgramInMemory(t *testing.T) {
	tooltest.AnyAttachType(t)
	prog, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("in memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memory")
	defer memory.Close()
	if _, err := memory.Write(code); err != nil {
		t.Fatal(err)
	}
	var link string
	res := tooltest.JSON(t, Tool, []string{"--ppid", strconv.Itoa(os.Getpid()), "--columns", "+exe,exe_deleted"}, func() {
		cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd))
		cmd.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		// Once the program answers, its exec is complete.
		fmt.Fprintln(in, "hello")
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Error(err)
		}
		link, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		in.Close()
		cmd.Wait()
	})
	if err != nil || len(res.Events) != 1 {
		t.Fatalf("%v, rows %v, want one", err, res.Events)
	}
	r := res.Events[0]
	if deleted, _ := r["exe_deleted"].(bool); !deleted || r.Str("exe")+" (deleted)" != link {
		t.Errorf("exe %q, deleted %v; /proc has %q", r.Str("exe"), deleted, link)
	}
}
