package profile

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// spinning is a C program whose innermost function is inlined in another one.
const spinning = `#include <stdio.h>
static volatile unsigned long sum;
static inline __attribute__((always_inline)) void inner(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i;
}
__attribute__((noipa)) static void outer(unsigned long n)
{
	inner(n);
}
int main(void)
{
	puts("ready"), fflush(stdout);
	for (;;)
		outer(1000000);
}
`

// startSpinning compiles the program, starts it and returns its process ID.
func startSpinning(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip(err)
	}
	source, program := filepath.Join(t.TempDir(), "spinning.c"), filepath.Join(t.TempDir(), "spinning")
	if err := os.WriteFile(source, []byte(spinning), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O1", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

// TestLines checks the line numbers of frames, including those of inlined functions.
func TestLines(t *testing.T) {
	tooltest.Root(t)
	pid := startSpinning(t)
	res := sample(t, []string{"-F", "499", "-U", "--lines", "--inlines", "--pid", pid}, pid, 100)
	var all, right float64
	for _, r := range res.Rows {
		all += r.Num("count")
		frames, _ := r["user_stack"].([]any)
		var got []string
		for _, f := range frames[:min(3, len(frames))] {
			frame, _ := f.(map[string]any)
			file, _ := frame["file"].(string)
			got = append(got, fmt.Sprint(frame["symbol"], " ", filepath.Base(file), ":", frame["line"], " ", frame["inlined"]))
		}
		for _, line := range []string{"5", "6"} {
			if slices.Equal(got, []string{"inner spinning.c:" + line + " true", "outer spinning.c:10 <nil>", "main spinning.c:16 <nil>"}) {
				right += r.Num("count")
			}
		}
	}
	if right < 0.95*all {
		t.Errorf("%.0f of %.0f samples have line numbers: %v", right, all, res.Rows)
	}
}
