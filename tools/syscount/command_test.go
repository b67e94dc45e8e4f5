package syscount

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// mkdirs counts calls of mkdir and mkdirat: which of them a program uses depends on its C library
// and the architecture.
func mkdirs(rows []tooltest.Row) float64 {
	return sum(rows, "mkdir", "count") + sum(rows, "mkdirat", "count")
}

// mkdirInBackground creates directories in this process, not in the command: these calls must not
// be counted.
func mkdirInBackground(t *testing.T) {
	dir, stop, done := t.TempDir(), make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Mkdir(dir+"/other", 0o700)
				unix.Rmdir(dir + "/other")
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// TestExec checks that --exec counts the calls of the command, in any shell syntax, and of all its
// descendants.
func TestExec(t *testing.T) {
	mkdirInBackground(t)
	for _, tt := range []struct {
		name, command string
		made          int
	}{
		{"one program", `"$MADE"`, 3},
		{"a list", `cd / && "$MADE"`, 3},
		{"an assignment", madeEnv + `="$ELSEWHERE" "$MADE"`, 3},
		{"a pipeline", `"$MADE" | cat`, 3},
		{"children", `for i in 1 2 3 4 5; do "$MADE"; done`, 15},
		{"grandchildren", `sh -c '"$MADE"; sh -c "\$MADE; :"; :'; :`, 6},
		{"in the background", `"$MADE" & "$MADE" & wait`, 6},
		// The parent exits before the child makes its directories.
		{"an orphan", `mkfifo "$FIFO"; sh -c '(read -r x <"$FIFO"; "$MADE"; echo >"$FIFO") &'; echo >"$FIFO"; read -r x <"$FIFO"`, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(madeEnv, t.TempDir())
			t.Setenv("ELSEWHERE", t.TempDir())
			t.Setenv("FIFO", filepath.Join(t.TempDir(), "fifo"))
			t.Setenv("MADE", os.Args[0])
			res := tooltest.JSON(t, Tool, []string{"--exec", tt.command}, nil)
			tooltest.CheckTotal(t, res.Summary, int(mkdirs(res.Rows)), tt.made)
			if n := tooltest.Lost(res.Summary); n != 0 {
				t.Errorf("%d lost", n)
			}
			if sum(res.Rows, "exit_group", "count") > 0 {
				t.Error("exit_group returned")
			}
		})
	}
}

// TestExecAsStrace compares with strace: counts start with the execve of the command or of its
// shell, without the wait for the tool.
func TestExecAsStrace(t *testing.T) {
	tooltest.Root(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	const list = `cd / && pwd -P >/dev/null; ls -d / >/dev/null; (ls -d /; :) >/dev/null; :`
	for command, argv := range map[string][]string{"ls -d /": {"ls", "-d", "/"}, list: {"/bin/sh", "-c", list}} {
		file := filepath.Join(t.TempDir(), "strace")
		if out, err := exec.Command(strace, append([]string{"-f", "-c", "-o", file}, argv...)...).CombinedOutput(); err != nil {
			t.Skipf("strace cannot trace here: %v: %s", err, out)
		}
		res := tooltest.JSON(t, Tool, []string{"--exec", command}, nil)
		theirs := straceCounts(t, file)
		for _, call := range []string{"execve", "openat", "mmap", "close", "chdir", "clone", "vfork", "fork", "wait4", "read", "write", "dup2"} {
			t.Logf("%s: %v of %s by strace", command, theirs[call], call)
			tooltest.CheckTotal(t, res.Summary, int(sum(res.Rows, call, "count")), int(theirs[call]))
		}
		if theirs["execve"] < 1 {
			t.Errorf("%s: strace has %v", command, theirs)
		}
	}
}

// straceCounts reads the table of strace -c.
func straceCounts(t *testing.T, file string) map[string]float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts := map[string]float64{}
	for in := bufio.NewScanner(f); in.Scan(); {
		fields := strings.Fields(in.Text())
		if len(fields) < 5 {
			continue
		}
		if n, err := strconv.ParseFloat(fields[3], 64); err == nil {
			counts[fields[len(fields)-1]] = n
		}
	}
	return counts
}

// A run whose command fails also fails, with the exit status of the command in the message.
func TestExecFails(t *testing.T) {
	tooltest.Root(t)
	for command, want := range map[string]string{
		"exit 7":                     "exit status 7",
		"cd /nonexistent && ls":      "exit status",
		"true; /nonexistent/program": "exit status 127",
		"kill -TERM $$":              "signal: terminated",
		"syntax ( error":             "exit status",
		"true; FOO=bar sh -c false":  "exit status 1",
	} {
		out, code := usage(t, "--exec", command)
		if message := fmt.Sprintf("command %q failed: %s", command, want); code != tool.ExitFailure || !strings.Contains(out, message) {
			t.Errorf("exit code %d, want %d and %q: %s", code, tool.ExitFailure, message, out)
		}
		if !strings.Contains(out, "SYSCALL") {
			t.Errorf("%s: the report is missing: %s", command, out)
		}
	}
	if out, code := usage(t, "--exec", "/nonexistent/program"); code != tool.ExitUsage || !strings.Contains(out, "no such file") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := usage(t, "--exec", "true", "--pid", "1"); code != tool.ExitUsage {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// The run ends when the command exits, and reports the processes that the command has left running.
func TestExecLeavesProcesses(t *testing.T) {
	tooltest.Root(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := usage(t, "--exec", fmt.Sprintf("read -r x <%s >/dev/null 2>&1 & exit 0", fifo))
	if code != tool.ExitOK || !strings.Contains(out, "the command ended before 1 process that it started") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
}

// An interrupted run does not fail because its command fails afterwards.
func TestExecInterrupted(t *testing.T) {
	tooltest.Root(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- tool.Run(ctx, Tool, []string{"--exec", fmt.Sprintf("read -r x <%s; exit 3", fifo)}, &out, &out)
	}()
	command, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once the command reads
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	command.Close()
	if code := <-ended; code != tool.ExitOK {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// Processes that do not fit in the map of the command's processes are counted as lost.
func TestExecLosses(t *testing.T) {
	tooltest.Root(t)
	small := *Tool
	small.Object = func(which ...tool.Variants) (*ebpf.CollectionSpec, error) {
		spec, err := loadBpf(which...)
		if err == nil {
			spec.Maps["command_processes"].MaxEntries = 1
		}
		return spec, err
	}
	var out bytes.Buffer
	args := []string{"--strict", "--output", "json", "--exec", "/bin/pwd >/dev/null; :"}
	code := tool.Run(t.Context(), &small, args, &out, &out)
	if code != tool.ExitLost || !strings.Contains(out.String(), `"map_full":1,`) {
		t.Errorf("exit code %d, want %d and one process lost: %s", code, tool.ExitLost, &out)
	}
}
