package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// onMachine returns the text for this architecture.
func onMachine(x86, arm64 string) string {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return x86
}

// TestBCC checks the number of rows and the message of the first one for probes in BCC's syntax.
func TestBCC(t *testing.T) {
	path := (&tooltest.Native{Touches: 9}).Write(t)
	first := onMachine("ctx->di", "ctx->regs[0]")
	for _, c := range []struct {
		probe, flags string
		rows         int
		message      string
	}{
		{":" + path + `:touch "n=%d", arg1`, "", 9, "n=9"},
		{"p:" + path + `:touch "%s|%x", arg3@user, ` + first, "", 9, "known answer|9"},
		{path + `:touch "%d|%hd|%ld|%d|%d", arg2, arg2, arg1, arg2 - 1, (unsigned char)arg2`, "", 9, "-100|-100|9|-101|156"},
		{"r:" + path + `:touch (retval) "r=%d", retval`, "", 9, "r=10"},
		{"r:" + path + `:touch (retval == 3) "r=%d", retval`, "", 1, "r=3"},
		{path + `:touch ((int)arg2 == -ENETDOWN && arg1 > EPERM) "%s", $COMM`, "", 8, "native"},
		{path + `:touch(u_int64_t n, int m, char *text)(n) "%d %d %s", n, m, text`, "", 9, "9 -100 known answer"},
		{path + `:touch(long n, int m, char *text) (STRCMP("{0x6b, 'n', 0157}", text)) "%d", n`, "-B", 9, "9"},
		{path + `:touch(long n, int m, char *text) (STRCMP("{0x6b, 'n', 0}", text)) "%d", n`, "--bin_cmp", 0, ""},
		{path + `:touch(long n, int m, char *text) (STRCMP("known answer", text)) "%d", n`, "-B", 9, "9"},
		{path + `:touch ($task->tgid == $PID && $task->pid == $TID && pid == $tgid && tid == $pid) "%s", $task->comm`, "-I", 9, "native"},
		{path + `:touch (O_CREAT == ` + fmt.Sprint(unix.O_CREAT) + ` && !NULL) "x"`, "", 9, "x"},
	} {
		args := []string{"-T", "-a", c.probe}
		switch c.flags {
		case "":
		case "-I":
			args = append(args, "-I", "linux/sched.h", "-s", "/lib/x.so,/lib/y.so")
		default:
			args = append(args, c.flags)
		}
		lines := strings.Split(strings.TrimSpace(tooltest.Text(t, Tool, append(args, "--comm", "native"), func() { run(t, path) })), "\n")
		if len(lines)-1 != c.rows || c.rows > 0 && !regexp.MustCompile(`^\d\d:\d\d:\d\d .* touch +`+regexp.QuoteMeta(c.message)+`$`).MatchString(lines[1]) {
			t.Errorf("%s: %d rows, want %d with %q: %q", c.probe, len(lines)-1, c.rows, c.message, lines)
		}
	}
}

// TestUSDTArguments checks constants, registers and memory, with their sizes and signs.
func TestUSDTArguments(t *testing.T) {
	lib := native.Open(t, "libusdt.so", []string{"fire"}, native.Probe{
		Function: "fire", Provider: "known", Name: "answer", Semaphore: true,
		Args: onMachine("8@%rdi -4@%esi 4@%esi -1@$-5 8@%rdx 2@(%rdx) -8@8(%rcx,%r8,4) 1@%dil",
			"8@x0 -4@w1 4@w1 -1@-5 8@x2 2@[x2] -8@[x3, 24] 1@w0"),
	})
	text, words := append([]byte("hello"), 0), [5]int64{1, 2, 3, -4, 5}
	call := native.Call{Args: [7]uint64{0x1ff, 0xffffffff_fffffff0, uint64(uintptr(unsafe.Pointer(&text[0]))), uint64(uintptr(unsafe.Pointer(&words[0]))), 4}}
	probe := "u:" + lib.Path + `:known:answer "%d %d %u %d %s %x %d %u", arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8`
	for _, c := range []struct {
		probe string
		want  string
	}{
		{probe, "511 -16 4294967280 -5 hello 6568 -4 255"},
		{"u:" + lib.Path + `:answer (arg4 == -5 && arg2 < 0) "%d", arg1 + 1`, "512"},
		{"u:" + lib.Path + `:answer(unsigned n, short m, char c, int d, char *text) (STRCMP("hello", text)) "%u %d", n, m`, "511 -16"},
		{"u:" + lib.Path + `:answer (arg2 > 0) "%d", arg1`, ""},
	} {
		out := tooltest.Text(t, Tool, []string{"-S", c.probe}, func() { lib.Call("fire", call) })
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if c.want == "" && len(lines) == 1 {
			continue
		}
		if len(lines) != 2 || !strings.HasSuffix(lines[1], " "+c.want) {
			t.Errorf("%s: %q, want one row with %q", c.probe, lines, c.want)
		}
	}
	runtime.KeepAlive(text)
	runtime.KeepAlive(&words)
}

// TestAggregate checks that -A counts equal rows.
func TestAggregate(t *testing.T) {
	path := (&tooltest.Native{Touches: 30}).Write(t)
	res := tooltest.JSON(t, Tool, []string{"-A", path + `:touch "%d %s", arg1 / 20, arg3`}, func() { run(t, path) })
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprintf("%v %v", r.Num("count"), r.Object("args").Num("arg1 / 20")))
	}
	if strings.Join(got, ", ") != "19 0, 11 1" {
		t.Errorf("counts %v, want 19 rows with 0 and 11 with 1", got)
	}
}

// TestSymbols checks %U and %K with the address of the traced function, and with the caller of an
// allocation in the kernel.
func TestSymbols(t *testing.T) {
	lib := native.Open(t, "libsymbol.so", []string{"here"})
	call := native.Call{Args: [7]uint64{uint64(reflect.ValueOf(onMachine).Pointer())}}
	call.Args[1] = call.Args[0] + 2
	out := tooltest.Text(t, Tool, []string{"-S", lib.Path + `:here "at %U, %U, %U", arg1, arg2, 16`}, func() { lib.Call("here", call) })
	if !regexp.MustCompile(` at (\S+\.onMachine) \[trace\.test\], \S+\.onMachine\+0x2 \[trace\.test\], 0x10\n$`).MatchString(out) {
		t.Errorf("output %q, want the function onMachine and an address without a symbol", out)
	}
	probe := `t:kmem:kmalloc (pid == ` + fmt.Sprint(os.Getpid()) + `) "by %K", call_site`
	out = tooltest.Text(t, Tool, []string{"-S", "--limit", "1", probe}, func() {
		for range 100 {
			_, _ = filepath.Glob("/proc/self/fd/*")
		}
	})
	if !regexp.MustCompile(` by [a-zA-Z_][\w.]+\+0x[0-9a-f]+( \[\w+\])?\n$`).MatchString(out) {
		t.Errorf("output %q, want a kernel function", out)
	}
}

// TestTimes checks the times of -t and of -t with -u.
func TestTimes(t *testing.T) {
	path := (&tooltest.Native{Touches: 1}).Write(t)
	for flags, want := range map[string]string{"-t": `^\d{1,3}\.\d+ `, "-tu": `^\d{10}\.\d{6} `, "-T": `^\d\d:\d\d:\d\d `} {
		lines := strings.Split(tooltest.Text(t, Tool, []string{flags, path + ":touch"}, func() { run(t, path) }), "\n")
		if len(lines) < 2 || !regexp.MustCompile(want).MatchString(lines[1]) {
			t.Errorf("%s: %q, want %s", flags, lines, want)
		}
	}
}
