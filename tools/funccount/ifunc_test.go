package funccount

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// usage returns the error message of a command line that the tool rejects.
func usage(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := tool.Run(t.Context(), Tool, args, &out, &out); code != tool.ExitUsage {
		t.Errorf("%q: exit code %d, want %d: %s", args, code, tool.ExitUsage, out.String())
	}
	return out.String()
}

// TestIndirect counts calls of an IFUNC with several implementations: only calls of the
// implementation that this process has selected count.
func TestIndirect(t *testing.T) {
	lib := native.OpenChoices(t, "libchoice.so.1", []string{"fast", "slow", "resolver", "other"},
		native.Choice{Name: "work", Resolver: "resolver"}, native.Choice{Name: "play", Resolver: "other"})
	lib.Choose(0, "fast")
	self := fmt.Sprint(os.Getpid())
	calls := func() {
		for range 1000 {
			lib.Call("fast", native.Call{})
		}
		lib.Call("slow", native.Call{})
		lib.Call("resolver", native.Call{})
	}
	for _, args := range [][]string{{"-p", self, "choice:work"}, {lib.Path + ":work"}, {"-p", self, "choice:wor?"}, {"choice:work"}} {
		res := tooltest.JSON(t, Tool, args, calls)
		if got := counted(res); got != "map[work:1000]" {
			t.Errorf("%q: %s, want 1,000 of work: %s", args, got, res.Stderr)
		}
		if !strings.Contains(res.Stderr, "implementation") {
			t.Errorf("%q: the output does not name the traced implementation: %s", args, res.Stderr)
		}
	}
	lib.Choose(1, "fast")
	res := tooltest.JSON(t, Tool, []string{"-p", self, "choice:work"}, calls)
	if !strings.Contains(res.Stderr, "shares that code with play") {
		t.Errorf("no notice that play uses the same implementation, whose calls are counted too: %s", res.Stderr)
	}
}

// copies is a program that calls functions of the C library 1,000 times each, by the addresses that
// the dynamic loader returns. Once it has started, it does not call them otherwise.
const copies = `
#include <string.h>
#include <unistd.h>
int main(void) {
	char from[64] = "text", to[64], c;
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	size_t (*volatile length)(const char *) = strlen;
	write(1, "begun\n", 6);
	read(0, &c, 1);
	for (int i = 0; i < 1000; i++) {
		copy(to, from, sizeof(to));
		length(from);
	}
	write(1, "done\n", 5);
	read(0, &c, 1);
	return 0;
}
`

// TestLibrary counts IFUNCs of the installed C library, which have several implementations in
// glibc.
func TestLibrary(t *testing.T) {
	path := tooltest.CompileC(t, copies, "-O1", "-fno-builtin")
	for _, function := range []string{"memcpy", "strlen"} {
		cmd := exec.Command(path)
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
		lines := bufio.NewScanner(out)
		lines.Scan()
		res := tooltest.JSON(t, Tool, []string{"-p", fmt.Sprint(cmd.Process.Pid), "c:" + function}, func() {
			fmt.Fprintln(in)
			lines.Scan()
		})
		if got, want := counted(res), "map["+function+":1000]"; got != want {
			t.Errorf("%s, want %s: %s", got, want, res.Stderr)
		}
		in.Close()
		cmd.Wait()
	}
}
