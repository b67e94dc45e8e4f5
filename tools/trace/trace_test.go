package trace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func run(t testing.TB, path string) {
	t.Helper()
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run %s: %v: %s", path, err, out)
	}
}

// attachOptions returns the options that force each attach type of user functions; with -short only
// the default.
func attachOptions() [][]string {
	return tooltest.ArgVariants([]string{"--hook", "user=uprobe", "--hook", "user_return=uprobe"})
}

// TestUserFunction checks all hits, in order, with all arguments.
func TestUserFunction(t *testing.T) {
	const touches = 500
	path := (&tooltest.Native{Touches: touches}).Write(t)
	for _, attach := range attachOptions() {
		args := append(attach, path+":touch(arg1, (int)arg2, arg3:str, arg3:x, comm)")
		res := tooltest.JSON(t, Tool, args, func() { run(t, path) })
		if len(res.Events) != touches || res.Summary.Num("lost") != 0 {
			t.Fatalf("%v: %d rows, want %d: %v", attach, len(res.Events), touches, res.Summary)
		}
		for i, row := range res.Events {
			args := row.Object("args")
			if row.Str("func") != "touch" || row.Str("module") != path || row.Str("comm") != "native" {
				t.Errorf("row %v", row)
			}
			// The task name is read with a helper, the string from memory.
			if args.Num("arg1") != float64(touches-i) || args.Num("(int)arg2") != -100 || args.Str("comm") != "native" ||
				args.Str("arg3") != "known answer" || !strings.HasPrefix(args.Str("arg3:x"), "0x4") {
				t.Fatalf("%v: hit %d has %v", attach, i, args)
			}
		}
	}
}

// TestConditions checks conditions in each syntax, at entry and return.
func TestConditions(t *testing.T) {
	path := (&tooltest.Native{Touches: 100}).Write(t)
	for probe, want := range map[string]int{
		path + ":touch(arg1) if arg1 > 90":                                    10,
		path + ":touch(arg1, arg2) if arg1 % 10 == 0":                         10,
		"p:" + path + ":touch (arg1 < 5 && (int)arg2 == -100) \"%d\", arg1":   4,
		path + ":touch(long n, int m, char *text) if n == 7 && m < 0":         1,
		path + `:touch if arg3 == 0`:                                          0,
		path + `:touch(char *a, int b, char *c) (STRCMP("known answer", c))`:  100,
		path + `:touch(char *a, int b, char *c) (STRCMP("known answers", c))`: 0,
		path + `:touch(char *a, int b, char *c) (STRCMP("known", c))`:         0,
		"r:" + path + ":touch(retval) if retval == 101":                       1,
		"uretprobe:" + path + ":touch if $retval <= 11":                       10,
		path + `:touch(return > 51)`:                                          -1,
		path + `:touch if comm == "native"`:                                   100,
		path + `:touch if comm == "other"`:                                    0,
		path + `:touch if *(u64 *)8 == 0`:                                     0, // unmapped address
		path + `:touch if arg1 == 1 || *(u64 *)8 == 0`:                        1,
	} {
		if want < 0 {
			continue
		}
		res := tooltest.JSON(t, Tool, []string{probe}, func() { run(t, path) })
		if len(res.Events) != want {
			t.Errorf("%s: %d rows, want %d", probe, len(res.Events), want)
		}
		if want == 0 && !strings.Contains(res.Stderr, "no output: no event matched in ") {
			t.Errorf("%s: %q, want a message that no event matched", probe, res.Stderr)
		}
	}
}

func TestText(t *testing.T) {
	path := (&tooltest.Native{Touches: 2}).Write(t)
	out := tooltest.Text(t, Tool, []string{
		path + `:touch "%4d|%-4d|%s|%lx %% %c", arg1, (int)arg2, arg3, 255, 65 if arg1 == 2`,
		"r:" + path + ":touch(retval, *(u64 *)8) if retval == 2", "-Z", "5",
	}, func() { run(t, path) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"PID TID COMM FUNC ARGS", "touch    2|-100|known...|ff % A", "touch retval=2 *(u64 *)8=?"} {
		got := ""
		if len(lines) > i {
			got = strings.Join(strings.Fields(lines[i]), " ")
		}
		if !strings.HasSuffix(got, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("line %d is %q, want %q: %s", i, got, want, out)
		}
	}
}

// TestCutAndCSV checks that a truncated string is marked, and that CSV has the values as JSON.
func TestCutAndCSV(t *testing.T) {
	path := (&tooltest.Native{Touches: 1}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-Z", "5", path + ":touch(arg3:str)"}, func() { run(t, path) })
	if len(res.Events) != 1 || fmt.Sprint(res.Events[0].Object("args")) != "map[arg3:known cut:[arg3]]" {
		t.Errorf("rows %v", res.Events)
	}
	args := []string{"--output", "csv", "--columns", "func,args", path + ":touch(arg1, arg3:str)"}
	if out := tooltest.Text(t, Tool, args, func() { run(t, path) }); out != "func,args\ntouch,\"{\"\"arg1\"\":1,\"\"arg3\"\":\"\"known answer\"\"}\"\n" {
		t.Errorf("CSV is %q", out)
	}
}

// TestTracepoint checks a tracepoint with a string of variable length.
func TestTracepoint(t *testing.T) {
	tooltest.Tracefs(t)
	path := (&tooltest.Native{}).Write(t)
	probe := fmt.Sprintf("t:sched:sched_process_exec(filename, pid, args->old_pid) if filename == %q", path)
	res := tooltest.JSON(t, Tool, []string{probe, "--filter", "args.pid > 1"}, func() {
		for range 5 {
			run(t, path)
		}
		run(t, "/bin/true")
	})
	if len(res.Events) != 5 {
		t.Errorf("%d rows, want 5: %v", len(res.Events), res.Events)
	}
	for _, row := range res.Events {
		args := row.Object("args")
		if args.Str("filename") != path || args.Num("pid") != row.Num("pid") || args.Num("args->old_pid") != row.Num("pid") || row.Str("func") != "sched/sched_process_exec" {
			t.Errorf("row %v", row)
		}
	}
}

// TestSystemCall checks a tracepoint of system calls, whose fields have 8 bytes for any type.
func TestSystemCall(t *testing.T) {
	tooltest.SystemCallTracepoints(t)
	path := filepath.Join(t.TempDir(), "none")
	name := append([]byte(path), 0)
	name[0] = '/' // makes the page resident
	probe := fmt.Sprintf("t:syscalls:sys_enter_openat(dfd, filename, flags:x, mode) if dfd == -100 && pid == %d", os.Getpid())
	res := tooltest.JSON(t, Tool, []string{"-S", probe, "-f", path}, func() {
		if _, err := unix.Openat(unix.AT_FDCWD, path, unix.O_WRONLY, 0o640); err == nil {
			t.Error("the file exists")
		}
	})
	if len(res.Events) != 1 {
		t.Fatalf("rows %v", res.Events)
	}
	args := res.Events[0].Object("args")
	if args.Num("dfd") != -100 || args.Str("filename") != path || args.Num("mode") != 0o640 || args.Str("flags") != "0x"+strconv.FormatUint(unix.O_WRONLY|unix.O_LARGEFILE, 16) && args.Str("flags") != "0x1" {
		t.Errorf("arguments %v", args)
	}
}

// TestPattern checks that all matches of a pattern are hit, each under its name.
func TestPattern(t *testing.T) {
	path := (&tooltest.Native{Touches: 7, Depth: 3, Naps: 2}).Write(t)
	res := tooltest.JSON(t, Tool, []string{path + ":*", "r:" + path + ":nap(retval)"}, func() { run(t, path) })
	count := map[string]int{}
	for _, row := range res.Events {
		name := row.Str("func")
		if row.Has("args") {
			name = "r:" + name
		}
		count[name]++
	}
	if want := "map[_start:1 nap:5 r:nap:5 recurse:3 touch:7]"; fmt.Sprint(count) != want {
		t.Errorf("hits %v, want %s", count, want)
	}
}

func TestRefusals(t *testing.T) {
	tooltest.Tracefs(t)
	tooltest.Root(t)
	path := (&tooltest.Native{}).Write(t)
	for probe, want := range map[string]string{
		"":                           "missing probe",
		path + ":nothing":            "not found",
		path + ":touch(filename)":    "unknown name filename (available: arg1, arg2",
		path + ":touch(retval)":      "unknown name retval",
		"r:" + path + ":touch(arg1)": "unknown name arg1",
		path + ":touch(arg1":         `missing ","`,
		path + `:touch "%d %d", 1`:   "the format has 2 verbs, but the probe has 1 value",
		path + `:touch "%d", 1, 2`:   "the format has 1 verb, but the probe has 2 values",
		"t:sched:sched_switch(x)":    "unknown name x (available: cgroup, comm, cpu, gid, next_comm",
		path + ":touch(arg1:str, arg2:str, arg3:str, arg4:str)": "more than the limit of 272",
		"u:" + path + ":x": "USDT probe " + path + ":x: not found",
	} {
		var out, errOut bytes.Buffer
		if code := tool.Run(t.Context(), Tool, []string{probe}, &out, &errOut); code != tool.ExitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit code %d, %q, want %q", probe, code, errOut.String(), want)
		}
	}
}

// TestKernelWithinUser traces a function whose string is on a page that is not mapped yet, and the page
// fault of the kernel that reads it: it hits within the program of the function, in the same thread.
func TestKernelWithinUser(t *testing.T) {
	tooltest.Tracefs(t)
	const fault = "/sys/kernel/tracing/events/exceptions/page_fault_kernel"
	if _, err := os.Stat(fault); err != nil {
		t.Skipf("the kernel has no tracepoint for its page faults: %v", err)
	}
	const calls = 50
	path := tooltest.CompileC(t, fmt.Sprintf(`
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void named(long number, const char *name)
{
	__asm__ volatile("" : : "r"(number), "r"(name) : "memory");
}
int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDONLY);
	for (int i = 0; i < %d; i++) {
		char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
		named(42, p);
		munmap(p, 4096);
	}
	return 0;
}`, calls), "-O1")
	file := filepath.Join(t.TempDir(), "name")
	if err := os.WriteFile(file, []byte("a name on a page"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-U", "--comm", "program", path + ":named(arg1, arg2:str)", "t:exceptions:page_fault_kernel"}, func() {
		if out, err := exec.Command(path, file).CombinedOutput(); err != nil {
			t.Fatalf("run: %v: %s", err, out)
		}
	})
	whole, faults := 0, 0
	for _, r := range res.Events {
		args := r.Object("args")
		switch {
		case r.Str("func") == "exceptions/page_fault_kernel":
			faults++
		case args.Num("arg1") == 42 && args.Str("arg2") == "a name on a page" && r.HasSymbol("user_stack", "named"):
			whole++
		default:
			t.Errorf("row of the function: %v", r)
		}
	}
	// Before 6.0, programs do not wait for pages and the values are absent.
	if faults < calls {
		t.Skipf("%d page faults in %d calls: the program of the function does not wait for pages", faults, calls)
	}
	if whole != calls {
		t.Errorf("%d rows have both values, want %d; %d page faults", whole, calls, faults)
	}
}

// TestWithoutTracefs traces a tracepoint where tracefs is not mounted. That is not an error of usage.
func TestWithoutTracefs(t *testing.T) {
	tooltest.NewMounts(t)
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug"} {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	}
	tooltest.Fails(t, Tool, []string{"t:sched:sched_process_exec"}, tool.ExitUnsupported, "mount -t tracefs")
}
