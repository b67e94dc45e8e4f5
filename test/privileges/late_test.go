package privileges

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestLateFile has a program that nobody ran before, of another user, when the tool has
// given up what it does not use: it is attached to all the same. A second run of it is
// seen, as the first may be over by then.
func TestLateFile(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	shell := filepath.Join(dir, "bash")
	copyFile(t, "/bin/bash", shell)
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var typed []string
	rows := run(t, 0, true, func(pid int) {
		for i := range 2 {
			typed = append(typed, fmt.Sprintf("exit # %d", i))
			typeInto(t, shell, "true\n"+typed[i]+"\n")
		}
	}, "bashreadline")
	seen := 0
	for _, r := range rows {
		if r.Str("type") == "event" && len(typed) == 2 && r.Str("command") == typed[1] {
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("%q is shown %d times: %v", typed, seen, rows)
	}
}

// typeInto runs a shell on a terminal, as nobody, and types what makes it end.
func typeInto(t *testing.T, shell, keys string) {
	master, slave := tooltest.PTY(t)
	cmd := exec.Command(shell, "--norc", "-i")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Setctty: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	slave.Close()
	if _, err := master.WriteString(keys); err != nil {
		t.Error(err)
	}
	go func() { // or a full terminal stops the shell
		for buf := make([]byte, 4096); ; {
			if _, err := master.Read(buf); err != nil {
				return
			}
		}
	}()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", shell, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Skipf("there is no shell to copy: %v", err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
