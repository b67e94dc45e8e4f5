package funccount

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestExceptions counts returns of functions that exceptions leave, without an effect on the
// program.
func TestExceptions(t *testing.T) {
	path := tooltest.CompileThrows(t)
	want := fmt.Sprint(tooltest.ThrowsReturned())
	for _, hook := range []string{"", "user_return=multi", "user_return=uprobe"} {
		args := []string{"-r", "uretprobe:" + path + ":(throws|passes|tail|several|naps|waits)$"}
		if hook != "" {
			args = append(args, "--hook", hook)
		}
		res := tooltest.JSON(t, Tool, args, func() { tooltest.RunThrows(t, path) })
		if got := counted(res); got != want || res.Summary.Num("lost") != 0 {
			t.Errorf("%s: %s, want %s: %v", hook, got, want, res.Summary)
		}
	}
}

// addressProgram prints how often a function without an unwind table was called by a known function.
const addressProgram = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int known;

__attribute__((noinline)) void from(void)
{
	Dl_info info;

	if (dladdr(__builtin_return_address(0), &info) && info.dli_sname)
		known++;
}

__attribute__((noinline)) void caller(void)
{
	for (int i = 0; i < 100; i++)
		from();
}

int main(void)
{
	caller();
	printf("%d\n", known);
	return 0;
}
`

// TestReturnAddress checks that a function which reads its return address gets the right one, also
// if it has no entry in the unwind table.
func TestReturnAddress(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileC(t, addressProgram,
		"-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-rdynamic", "-ldl")
	var out []byte
	res := tooltest.JSON(t, Tool, []string{"-r", "uretprobe:" + path + ":from"}, func() {
		var err error
		if out, err = exec.Command(path).Output(); err != nil {
			t.Error(err)
		}
	})
	if string(out) != "100\n" {
		t.Errorf("the program printed %q, want 100", out)
	}
	if got := counted(res); got != fmt.Sprint(map[string]int{"from": 100}) {
		t.Errorf("counted %s, want 100 of from", got)
	}
}
