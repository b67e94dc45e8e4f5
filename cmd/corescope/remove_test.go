package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// manyFunctions compiles a program that calls each of n functions probed0, probed1, … once.
func manyFunctions(t *testing.T, n int) string {
	var defs, calls strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, "__attribute__((noinline)) int probed%d(int x) { __asm__ volatile(\"\"); return x + %d; }\n", i, i)
		fmt.Fprintf(&calls, "\tx = probed%d(x);\n", i)
	}
	return tooltest.CompileC(t, defs.String()+"int main(void)\n{\n\tint x = 0;\n"+calls.String()+"\treturn x == 1;\n}\n", "-O1")
}

// remover returns the process that a message names as the one that removes n probes.
func remover(t *testing.T, messages string) (pid, n int) {
	t.Helper()
	m := regexp.MustCompile(`process (\d+) removes (\d+) probes`).FindStringSubmatch(messages)
	if m == nil {
		t.Fatalf("no process removes the probes: %s", messages)
	}
	pid, _ = strconv.Atoi(m[1])
	n, _ = strconv.Atoi(m[2])
	return pid, n
}

// awaitRemoval waits until the process has removed the probes.
func awaitRemoval(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
			return
		}
		// It is a child of this test only if the test is a subreaper or the first process.
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if time.Now().After(deadline) {
			t.Fatalf("process %d still removes probes", pid)
		}
	}
}

// TestManyProbes stops a run with a probe for each of hundreds of functions. Removing them takes the
// kernel seconds. The run ends without that, with the counts up to the signal.
func TestManyProbes(t *testing.T) {
	tooltest.Root(t)
	const functions = 200
	path, target := buildBinary(t), manyFunctions(t, functions)
	cmd := exec.Command(path, "funccount", "--hook", "user=uprobe", "--output", "csv", target+":probed*")
	rows, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := bufio.NewReader(messages)
	for line := ""; !strings.Contains(line, "ready"); {
		if line, err = text.ReadString('\n'); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if out, err := exec.Command(target).CombinedOutput(); err != nil {
		t.Fatalf("run: %v: %s", err, out)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var table, rest bytes.Buffer
	_, rowsErr := table.ReadFrom(rows)
	_, restErr := rest.ReadFrom(text)
	if err := errors.Join(rowsErr, restErr, cmd.Wait()); err != nil {
		t.Fatalf("%v: %s", err, rest.String())
	}
	pid, n := remover(t, rest.String())
	if n != functions {
		t.Errorf("%d probes are removed, want %d", n, functions)
	}
	if once := strings.Count(table.String(), ",1\n"); once != functions {
		t.Errorf("%d functions were called once, want %d: %s", once, functions, table.String())
	}
	awaitRemoval(t, pid)
}

// TestStoppedWhileAttaching stops a run after some of its probes are attached.
func TestStoppedWhileAttaching(t *testing.T) {
	tooltest.Root(t)
	path, target := buildBinary(t), manyFunctions(t, 3000)
	cmd := exec.Command(path, "funccount", "--hook", "user=uprobe", target+":probed*")
	var messages bytes.Buffer
	cmd.Stderr = &messages
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 200; time.Sleep(time.Millisecond) {
		fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd"))
		if err != nil {
			t.Fatalf("%v: %s", err, messages.String())
		}
		n = len(fds)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, messages.String())
	}
	pid, n := remover(t, messages.String())
	if n < 50 {
		t.Errorf("%d probes are removed, want at least 50", n)
	}
	awaitRemoval(t, pid)
}
