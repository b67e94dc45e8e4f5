package privileges

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestLateFile starts a program for the first time, as another user, after the tool has dropped the
// capabilities that it no longer needs: the tool must still attach to it. It attaches some time
// after the program is mapped, so lines are typed until one is reported; after that none may be
// missing.
func TestLateFile(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "bash")
	copyFile(t, "/bin/bash", path)
	for dir := dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const last = "exit # the last line"
	rows := runSeeing(t, 0, true, func(_ int, printed func() []tooltest.Row) {
		sh := startShell(t, path)
		if sh == nil {
			return
		}
		line := func(r tooltest.Row) bool { return r.Num("pid") == float64(sh.cmd.Process.Pid) }
		end := time.Now().Add(deadline / 2)
		for i := 0; !slices.ContainsFunc(printed(), line); i++ {
			if time.Now().After(end) {
				t.Errorf("none of %d lines was reported", i)
				break
			}
			sh.enter(fmt.Sprintf("true # %d", i))
		}
		sh.exit(last)
	}, "bashreadline")
	seen := 0
	for _, r := range rows {
		if r.Str("type") == "event" && r.Str("command") == last {
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("%q is reported %d times: %v", last, seen, rows)
	}
}

// shell is a shell on a pseudo-terminal that a test types into.
type shell struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	text   []byte // output since the last prompt
}

const prompt = "prompt> "

// startShell runs a shell on a pseudo-terminal as user nobody, and waits for its prompt. It returns
// nil on failure.
func startShell(t *testing.T, path string) *shell {
	t.Helper()
	master, slave := tooltest.PTY(t)
	cmd := exec.Command(path, "--norc", "--noprofile", "-i")
	cmd.Env = []string{"PS1=" + prompt, "TERM=dumb", "HISTFILE=", "LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Setctty: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	slave.Close()
	s := &shell{t: t, cmd: cmd, master: master}
	s.await(prompt)
	return s
}

// await reads until the shell has printed the text.
func (s *shell) await(text string) {
	buf := make([]byte, 4096)
	for !bytes.Contains(s.text, []byte(text)) {
		n, err := s.master.Read(buf)
		if err != nil {
			s.t.Errorf("wait for %q: %v: the shell printed %q", text, err, s.text)
			return
		}
		s.text = append(s.text, buf[:n]...)
	}
	s.text = nil
}

// enter types a line, and returns when the shell reads the next one.
func (s *shell) enter(line string) {
	if _, err := s.master.WriteString(line + "\r"); err != nil {
		s.t.Error(err)
	}
	s.await("\n" + prompt)
}

// exit types a line that ends the shell, and waits for its exit.
func (s *shell) exit(line string) {
	if _, err := s.master.WriteString(line + "\r"); err != nil {
		s.t.Error(err)
	}
	for buf := make([]byte, 4096); ; { // a full terminal would block the shell
		if _, err := s.master.Read(buf); err != nil {
			break
		}
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%s: %v", s.cmd.Path, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Skipf("cannot read the shell: %v", err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
