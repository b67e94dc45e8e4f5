package stack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program prints the addresses of a static function, of a global function and of the vDSO (or 0),
// and waits until its input ends. static_one is not exported; global_two is with -rdynamic.
const program = `
#include <stdio.h>
#include <sys/auxv.h>

__attribute__((noinline)) static int static_one(int x) { return x * 3 + 1; }
__attribute__((noinline)) int global_two(int x) { return static_one(x) * 2; }

int main(void)
{
	printf("%p %p %#lx\n", (void *)static_one, (void *)global_two, getauxval(AT_SYSINFO_EHDR));
	fflush(stdout);
	while (getchar() != EOF)
		;
	return global_two(1) & 1;
}
`

// need skips the test unless all commands are installed.
func need(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil {
			t.Skip(err)
		}
	}
}

// run runs a command and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// compile builds a C program in a new directory.
func compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	need(t, "gcc")
	dir := t.TempDir()
	file, out := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", append([]string{"-O1", "-Wl,--build-id", "-o", out, file}, flags...)...)
	return out
}

// stripped returns a stripped copy of a program.
func stripped(t testing.TB, file string) string {
	t.Helper()
	need(t, "strip")
	out := filepath.Join(t.TempDir(), "prog")
	run(t, "strip", "-o", out, file)
	return out
}

// child is a running program.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Reader
	addrs []uint64 // in its first line of output
}

// start starts a program and reads the addresses in its first line of output.
func start(t testing.TB, name string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(name, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}
	t.Cleanup(c.stop)
	c.addrs = c.line()
	if len(c.addrs) == 0 {
		c.stop()
		t.Fatalf("%s printed no addresses:\n%s", name, &stderr)
	}
	return c
}

// line reads the numbers in the next line of output.
func (c *child) line() (numbers []uint64) {
	line, _ := c.lines.ReadString('\n')
	for field := range strings.FieldsSeq(line) {
		var n uint64
		if _, err := fmt.Sscan(field, &n); err != nil {
			c.t.Errorf("parse number %q: %v", field, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop closes the input of the program and waits until it exits.
func (c *child) stop() {
	if c.cmd.ProcessState == nil {
		c.stdin.Close()
		c.cmd.Wait()
	}
}

func newProcesses(t testing.TB) *Processes {
	ps := NewProcesses(0)
	t.Cleanup(func() {
		if err := ps.Close(); err != nil {
			t.Error(err)
		}
		if ps.cache.held != 0 || len(ps.roots) != 0 {
			t.Errorf("after Close, %d files and %d roots are open, want none", ps.cache.held, len(ps.roots))
		}
	})
	return ps
}

// name returns the frame of an address as the innermost one.
func (ps *Processes) name(pid int, addr uint64) Frame {
	return ps.Append(nil, pid, []uint64{addr})[0]
}

// expect checks name and offset of a frame.
func expect(t *testing.T, f Frame, name string, offset uint64) {
	t.Helper()
	if f.Name != name || f.Offset != offset || f.Reason != Named {
		t.Errorf("got %#v, want %s+%#x", f, name, offset)
	}
}

// funcAddress returns an address in itself.
//
//go:noinline
func funcAddress() uintptr {
	pc, _, _, _ := runtime.Caller(0)
	return pc
}
