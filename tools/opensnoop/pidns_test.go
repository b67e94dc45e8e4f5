package opensnoop

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// outside is a path that a process outside the PID namespace opens repeatedly.
const outside = "/no/such/file/outside"

func openOutside(t *testing.T) {
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				openOuter(outside)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// opener starts a process that opens the file when open is called.
func opener(t *testing.T, path string) (pid string, open func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `read go; : < "$0"`, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(cmd.Process.Pid), func() {
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it fails, because the file does not exist
	}
}

// In a child PID namespace --pid and --tid have its IDs, rows have those of the initial namespace.
// Stacks of its processes are symbolized. Processes outside the namespace are not mistaken for
// processes inside with the same PID. If /proc belongs to another namespace, IDs are refused.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.IsInNamespaces(t) {
		openOutside(t)
	}
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	dir := t.TempDir()
	for _, flag := range []string{"--pid", "--tid"} {
		path := filepath.Join(dir, flag)
		pid, open := opener(t, path)
		rows := tooltest.JSON(t, Tool, []string{flag, pid}, open).Events
		mine := slices.DeleteFunc(slices.Clone(rows), func(r tooltest.Row) bool { return r.Str("path") != path })
		if len(mine) != 1 || strconv.Itoa(int(mine[0].Num("pid"))) == pid {
			t.Errorf("%s %s: rows %v, want one with another PID", flag, pid, rows)
		}
		for _, r := range rows {
			if len(mine) == 1 && r.Num("pid") != mine[0].Num("pid") {
				t.Errorf("%s %s: row of another process: %v", flag, pid, r)
			}
		}
	}
	file := filepath.Join(dir, "called")
	rows := tooltest.JSON(t, Tool, append(self(), "-c"), func() { openOuter(file) }).Where(below(file))
	if len(rows) != 1 || len(callers(rows[0])) < 2 {
		t.Errorf("process in the namespace: rows %v, want one with symbolized callers", rows)
	}
	checkOutside(t)

	// The /proc of the initial namespace is mounted below that of this one.
	if err := unix.Unmount("/proc", 0); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--pid", "--tid"} {
		tooltest.Fails(t, Tool, []string{flag, "1"}, tool.ExitUsage, "/proc belongs to another PID namespace")
	}
	checkOutside(t)
}

// TestOtherProc runs the tool with a /proc that does not contain it.
func TestOtherProc(t *testing.T) {
	if tooltest.InOtherProc(t) {
		tooltest.Fails(t, Tool, nil, tool.ExitFailure, "/proc belongs to another PID namespace than this process: /proc/self does not exist (mount ")
	}
}

// checkOutside checks that a process outside the namespace has rows, whose frames have no symbols.
func checkOutside(t *testing.T) {
	t.Helper()
	res := tooltest.JSON(t, Tool, []string{"-c", "--filter", "path == '" + outside + "'", "--limit", "3"}, nil)
	if len(res.Events) != 3 {
		t.Errorf("%d rows of %s, want 3", len(res.Events), outside)
	}
	for _, r := range res.Events {
		frames, _ := r["user_stack"].([]any)
		for i, f := range frames {
			frame, _ := f.(map[string]any)
			if i > 0 && i == len(frames)-1 && frame["symbol"] == "[incomplete]" {
				continue // the walk is by frame pointers
			}
			if frame["symbol"] != nil || frame["reason"] != "in another PID namespace" {
				t.Errorf("process outside the namespace: frame %v", frame)
			}
		}
		if len(frames) == 0 {
			t.Errorf("row without user stack: %v", r)
		}
	}
}
