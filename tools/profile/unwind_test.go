package profile

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestFrameless checks that functions without frame pointers have complete stacks, from .eh_frame,
// and incomplete ones with frame pointers only.
func TestFrameless(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	for _, how := range []string{"auto", "fp"} {
		res := sample(t, []string{"-F", "499", "-U", "--unwind", how, "--pid", pid}, pid, 100)
		var all, whole float64
		for _, r := range res.Rows {
			all += r.Num("count")
			if slices.Equal(r.Symbols("user_stack"), tooltest.FramelessChain()) {
				whole += r.Num("count")
			}
		}
		if how == "auto" && whole < 0.99*all || how == "fp" && whole > 0 {
			t.Errorf("--unwind %s: %.0f of %.0f samples are complete: %v", how, whole, all, res.Rows)
		}
	}
}

// clockEnv makes the test program read the clock for a number of milliseconds of wall time.
const clockEnv = "CORESCOPE_CLOCK"

//go:noinline
func clockOuter(d time.Duration) int { return clockInner(d) + 1 }

//go:noinline
func clockInner(d time.Duration) (n int) {
	for begin := time.Now(); time.Since(begin) < d; {
		n++
	}
	return n
}

// startSelf runs the test program for an hour, or until the test ends, with a variable that is a number of
// milliseconds. It returns its PID.
func startSelf(t *testing.T, variable string) (pid string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"=3600000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}

// TestGoClock checks the stacks of a Go program that reads the clock: runtime.nanotime1 calls the vDSO on
// another stack than its own.
func TestGoClock(t *testing.T) {
	tooltest.Root(t)
	pid := startSelf(t, clockEnv)
	res := sample(t, []string{"-F", "499", "-U", "--pid", pid}, pid, 200)
	var all, whole, clock float64
	for _, r := range res.Rows {
		stack := r.Symbols("user_stack")
		if !slices.ContainsFunc(stack, func(name string) bool { return strings.HasPrefix(name, "runtime.nanotime1") }) {
			continue
		}
		clock += r.Num("count")
		if outer := slices.Index(stack, "github.com/corescope/corescope/tools/profile.clockOuter"); outer > 0 && outer < len(stack)-1 {
			whole += r.Num("count")
		}
	}
	for _, r := range res.Rows {
		all += r.Num("count")
	}
	least := 0.2 * all
	if runtime.GOARCH != "amd64" {
		least = 10 // the caller of the vDSO is found by the frame pointer, which skips runtime.nanotime1
	}
	if clock < least || whole < 0.95*clock {
		t.Errorf("%.0f of %.0f stacks with runtime.nanotime1 are complete, of %.0f samples: %v", whole, clock, all, res.Rows)
	}
}

// TestHow checks that frames with addresses also have the unwind method.
func TestHow(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	res := sample(t, []string{"-F", "499", "-U", "--address", "--pid", pid}, pid, 20)
	for _, r := range res.Rows {
		frames, _ := r["user_stack"].([]any)
		for i, f := range frames {
			frame, _ := f.(map[string]any)
			if how := frame["how"]; i == 0 && how != nil || i > 0 && how != "eh" {
				t.Errorf("frame %d of %v has method %v", i, frames, how)
			}
		}
	}
}

// TestAssembly checks that the caller of a function without unwind information is found by
// searching the stack, and that return addresses of earlier calls in its frame are not mistaken for
// it.
func TestAssembly(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Assembly(t).Process.Pid)
	args := []string{"-F", "499", "-U", "--address", "--pid", pid}
	res := sample(t, args, pid, 20)
	for _, r := range res.Rows {
		frames, _ := r["user_stack"].([]any)
		if len(frames) == 0 { // during exec
			continue
		}
		var how []any
		for _, f := range frames {
			frame, _ := f.(map[string]any)
			how = append(how, frame["how"])
		}
		if got := r.Symbols("user_stack"); !slices.Equal(got, tooltest.AssemblyChain()) {
			t.Errorf("stack is %v, want %v", got, tooltest.AssemblyChain())
		} else if want := []any{nil, "search", "eh"}; !slices.Equal(how, want) {
			t.Errorf("unwind methods are %v, want %v", how, want)
		}
	}
	text := tooltest.Text(t, Tool, args, tooltest.Spend(t, pid, 300*time.Millisecond))
	if !strings.Contains(text, "assembly_outer (found by stack search)") {
		t.Errorf("the text does not mark the frame: %s", text)
	}
}

// TestExec checks that a process that profile has already sampled gets the unwind table of a
// program that it executes.
func TestExec(t *testing.T) {
	tooltest.Root(t)
	cmd, start := tooltest.WaitingProgram(t, tooltest.FramelessProgram(t))
	checkWhole(t, cmd.Process.Pid, start, 0.9)
}

// sample runs profile with the arguments while a process uses CPU time, until its rows count at least
// n samples with a user stack. On a machine that gives this one a part of a CPU, few timers expire in a
// given CPU time, so the time is doubled if there are fewer.
func sample(t *testing.T, args []string, pid string, n float64) *tooltest.Result {
	t.Helper()
	const least, most = 300 * time.Millisecond, 20 * time.Second
	for cpu := least; ; cpu *= 2 {
		res := tooltest.JSON(t, Tool, args, tooltest.Spend(t, pid, cpu))
		all := 0.0
		for _, r := range res.Rows {
			if r.Has("user_stack") {
				all += r.Num("count")
			}
		}
		if all >= n {
			return res
		}
		if cpu > most {
			t.Fatalf("%v: %.0f samples in %v of CPU time, want %.0f: %v", args, all, cpu, n, res.Rows)
		}
	}
}

// checkWhole runs profile while process pid executes a [tooltest.FramelessProgram], which start
// triggers. The share of samples with complete stacks must be at least the given one, counted once
// the program has an unwind table.
func checkWhole(t *testing.T, pid int, start func(), share float64) {
	t.Helper()
	args := []string{"-F", "499", "-U", "--interval", "200ms", "--pid", strconv.Itoa(pid)}
	res := tooltest.JSONUntil(t, Tool, args, hasSteady(100), func(more func() bool) {
		start()
		for more() {
			time.Sleep(10 * time.Millisecond)
		}
	})
	checkSteady(t, res.Rows, share)
}

// hasSteady returns a function that reports whether steady counts at least this number of samples.
func hasSteady(samples float64) func([]tooltest.Row) bool {
	return func(rows []tooltest.Row) bool {
		all, _ := steady(rows)
		return all >= samples
	}
}

func checkSteady(t *testing.T, rows []tooltest.Row, share float64) {
	t.Helper()
	all, whole := steady(rows)
	if all == 0 || whole < share*all {
		t.Errorf("%.0f of %.0f samples are complete: %v", whole, all, rows)
	}
}

// steady counts the samples of a [tooltest.FramelessProgram], and those with complete stacks, in
// the reports after the first one with a complete stack: from then on the program has an unwind
// table. A complete stack ends with the first function of the program; a sample can also be taken
// before that function calls the next one. Samples without a user stack, taken in exec or exit, do
// not count.
func steady(rows []tooltest.Row) (all, whole float64) {
	first := ""
	for _, r := range rows {
		got, chain := r.Symbols("user_stack"), tooltest.FramelessChain()
		isWhole := len(got) <= len(chain) && slices.Equal(got, chain[len(chain)-len(got):])
		switch {
		case r.Str("comm") != "frameless" || !r.Has("user_stack"):
		case first == "" && isWhole && len(got) > 1:
			first = r.Str("time")
		case first == "" || r.Str("time") == first:
		default:
			all += r.Num("count")
			if isWhole {
				whole += r.Num("count")
			}
		}
	}
	return all, whole
}

//go:noinline
func bareOuter(d time.Duration) (n int) {
	for begin := cpuTime(); cpuTime() < begin+d; {
		n += bareLeaf(100_000)
	}
	return n
}

// leafEnv makes the test program call bareOuter for a number of milliseconds.
const leafEnv = "CORESCOPE_LEAF"

// bareLeaf has no stack frame.
//
//go:noinline
func bareLeaf(n int) (sum int) {
	for i := range n {
		sum ^= sum<<1 + i
	}
	return sum
}

// TestGoLeaf checks that a Go function without a frame has its caller, from the tables of the
// program. Frame pointers skip the caller.
func TestGoLeaf(t *testing.T) {
	tooltest.Root(t)
	pid := startSelf(t, leafEnv) // not this program, whose own samples would be more work to read
	for _, how := range []string{"auto", "fp"} {
		res := sample(t, []string{"-F", "499", "-U", "--unwind", how, "--address", "--pid", pid}, pid, 100)
		var all, right float64
		for _, r := range res.Rows {
			stack := r.Symbols("user_stack")
			if len(stack) < 2 || !strings.HasSuffix(stack[0], ".bareLeaf") {
				continue
			}
			all += r.Num("count")
			frame, _ := r["user_stack"].([]any)[1].(map[string]any)
			if strings.HasSuffix(stack[1], ".bareOuter") && frame["how"] == "go" && strings.HasPrefix(stack[len(stack)-1], "runtime.goexit") {
				right += r.Num("count")
			}
		}
		if all < 20 {
			t.Fatalf("--unwind %s: %.0f samples in the leaf: %v", how, all, res.Rows)
		}
		if how == "auto" && right < 0.99*all || how == "fp" && right > 0 {
			t.Errorf("--unwind %s: %.0f of %.0f samples have its caller: %v", how, right, all, res.Rows)
		}
	}
}

// jitProgram executes code that it has written to memory, as a JIT compiler does. The code has no
// unwind table, and uses the frame pointer for data.
const jitProgram = `
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
static const unsigned char code[] = {
	0x55,					/* push rbp */
	0x48, 0xc7, 0xc5, VALUE, 0, 0, 0,	/* mov rbp, VALUE */
	0x48, 0x83, 0xec, 0x40,			/* sub rsp, 0x40 */
	0xeb, 0xfe,				/* jmp to itself */
};
#elif defined(__aarch64__)
static const unsigned int code[] = {
	0xa9bf7bfd, /* stp x29, x30, [sp, -16]! */
	0xd280001d | VALUE << 5, /* mov x29, VALUE */
	0x14000000, /* b to itself */
};
#endif

int main(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, code, sizeof(code));
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		return 1;
	__builtin___clear_cache(page, (char *)page + sizeof(code));
	((void (*)(void))page)();
	return 0;
}
`

// TestIncomplete checks that a stack whose callers cannot be found says so, whatever the frame
// pointer is: 0 is its value in the outermost frame.
func TestIncomplete(t *testing.T) {
	tooltest.Root(t)
	for _, value := range []string{"0", "1", "0x34"} {
		t.Run(value, func(t *testing.T) { checkIncomplete(t, value) })
	}
}

func checkIncomplete(t *testing.T, value string) {
	t.Helper()
	cmd := exec.Command(tooltest.CompileC(t, jitProgram, "-O1", "-DVALUE="+value))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := strconv.Itoa(cmd.Process.Pid)
	args := []string{"-F", "499", "-U", "--pid", pid}
	res := sample(t, args, pid, 20)
	inCode := 0
	for _, r := range res.Rows {
		frames, _ := r["user_stack"].([]any)
		if len(frames) == 0 {
			continue // during exec
		}
		innermost, _ := frames[0].(map[string]any)
		if innermost["module"] != "[anon]" {
			continue // before the call
		}
		inCode++
		last, _ := frames[len(frames)-1].(map[string]any)
		if len(frames) != 2 || len(last) != 1 || last["symbol"] != "[incomplete]" {
			t.Errorf("stack is %v, want a frame and [incomplete]", frames)
		}
	}
	if inCode == 0 {
		t.Errorf("no stack in the code: %v", res.Rows)
	}
}
