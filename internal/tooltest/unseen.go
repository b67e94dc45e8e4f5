package tooltest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unseenSource is a program whose functions FUNCTION and TAIL a tool traces. Its first call of
// FUNCTION is blocked until it reads a byte. The calls after it must not be counted as calls
// without an entry: six nested ones, of which a tool stores four, and one that jumps to FUNCTION,
// so that a return instruction of FUNCTION ends it.
const unseenSource = `
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

KEEP long FUNCTION(long depth)
{
	char byte;
	long n = depth > 0 ? FUNCTION(depth - 1) : read(0, &byte, 1);

	asm volatile("" : "+r"(n));
	return n;
}

KEEP long TAIL(long depth)
{
	asm volatile("");
	return FUNCTION(depth);
}

int main(void)
{
	FUNCTION(0);
	FUNCTION(5);
	TAIL(0);
	return 0;
}
`

// UnseenNested is the number of nested calls that the program of CompileUnseen makes and that a
// tool cannot store.
const UnseenNested = 2

// CompileUnseen compiles a program with a call that is in progress when a tool starts. tail is a
// function that jumps to function.
func CompileUnseen(t testing.TB, function, tail string) string {
	t.Helper()
	return CompileC(t, unseenSource, "-O2", "-fno-builtin", "-DFUNCTION="+function, "-DTAIL="+tail)
}

// StartUnseen starts the program of CompileUnseen and waits until its first call is blocked. finish
// ends this call, and waits until the program has made the others.
func StartUnseen(t testing.TB, path string) (pid int, finish func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	want := fmt.Sprintf("%d 0x0 ", unix.SYS_READ) // of standard input
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", cmd.Process.Pid))
		if err != nil {
			t.Skipf("read the system call of a process: %v", err)
		}
		if strings.HasPrefix(string(text), want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the program does not read: %s", text)
		}
	}
	return cmd.Process.Pid, func() {
		if _, err := in.Write([]byte{1}); err != nil {
			t.Error(err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
