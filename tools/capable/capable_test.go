package capable

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// The checks of the load: settimeofday without arguments changes nothing, and needs CAP_SYS_TIME;
// setuid needs CAP_SETUID.
const (
	setTime = float64(unix.CAP_SYS_TIME)
	setUID  = float64(unix.CAP_SETUID)
)

//go:noinline
func setTimes(n int) {
	for range n {
		unix.RawSyscall(unix.SYS_SETTIMEOFDAY, 0, 0, 0)
	}
}

// checks makes 20 checks that succeed, then 10 that fail, in a thread that ends.
func checks() {
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		setTimes(20)
		const nobody = 65534
		unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		setTimes(10)
		unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0)
	}()
	<-done
}

// run runs the tool during the load.
func run(t *testing.T, args ...string) *tooltest.Result {
	t.Helper()
	return tooltest.JSON(t, Tool, append([]string{"--pid", strconv.Itoa(os.Getpid())}, args...), checks)
}

func of(capability float64) func(tooltest.Row) bool {
	return func(r tooltest.Row) bool { return r.Num("cap") == capability }
}

func TestChecks(t *testing.T) {
	res := run(t)
	verdicts := map[string]int{}
	rows := res.Where(of(setTime))
	for _, r := range rows {
		verdicts[fmt.Sprint(r.Str("verdict"), r.Num("ret"), r.Num("uid"))]++
		if r.Str("capability") != "CAP_SYS_TIME" || r.Num("userns") != inode(t) {
			t.Errorf("row: %v", r)
		}
	}
	if len(rows) != 30 || verdicts["allow0 0"] != 20 || verdicts["deny-1 65534"] != 10 {
		t.Errorf("checks of CAP_SYS_TIME: %v, want 20 that succeed and 10 that fail", verdicts)
	}
	denied := res.Where(func(r tooltest.Row) bool { return r.Num("cap") == setUID && r.Str("verdict") == "deny" })
	if len(denied) != 1 {
		t.Fatalf("failed checks of CAP_SETUID: %v, want 1", denied)
	}
	for _, r := range []tooltest.Row{rows[0], denied[0]} {
		if !r.Has("audit") {
			if tooltest.HasTracepoint(t, "cap_capable") {
				continue
			}
			t.Errorf("no options, and the kernel has no tracepoint: %v", r)
		}
		if isSetUID := r.Num("cap") == setUID; r["audit"] != true || r["insetid"] != isSetUID {
			t.Errorf("options: %v", r)
		}
	}
}

// inode returns the user namespace of this process.
func inode(t *testing.T) float64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
		t.Fatal(err)
	}
	return float64(st.Ino)
}

func TestFilters(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--unique", "pid"}, 2}, // one for each verdict
		{[]string{"--unique", "cgroup"}, 2},
		{[]string{"--unique", "pid", "--filter", "uid == 65534"}, 1},
		{[]string{"--unique", "cgroup", "--filter", "uid == 65534"}, 1},
		{[]string{"--unique", "pid", "--filter", `capability == "CAP_SYS_TIME"`}, 2},
		{[]string{"--denied"}, 10},
		{[]string{"--denied", "-u", "pid"}, 1},
	} {
		if got := len(run(t, tt.args...).Where(of(setTime))); got != tt.want {
			t.Errorf("%q: %d rows, want %d", tt.args, got, tt.want)
		}
	}
}

func TestStacks(t *testing.T) {
	rows := run(t, "-K", "-U").Where(of(setTime))
	if len(rows) != 30 {
		t.Errorf("%d rows, want 30", len(rows))
	}
	for _, r := range rows {
		if !r.HasSymbol("user_stack", "capable.setTimes") {
			t.Errorf("user stack: %q", r.Symbols("user_stack"))
			break
		}
	}
	if len(rows) == 0 || rows[0].HasSymbol("kernel_stack", "settimeofday") {
		return
	}
	// The unwinder of 5.10 ends at the trampoline of a kretprobe, that of 6.1 does not.
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	if k := rows[0].Symbols("kernel_stack"); !slices.Equal(k, []string{"kretprobe_trampoline"}) || version >= 6<<16|1<<8 {
		t.Errorf("kernel stack: %q", k)
	}
}

func TestDepth(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, r := range run(t, "-K", "-U", "--perf-max-stack-depth", "2").Where(of(setTime)) {
		if k, u := r.Symbols("kernel_stack"), r.Symbols("user_stack"); len(k) != 2 || len(u) != 2 {
			t.Errorf("stacks: %q, %q, want two frames each", k, u)
			break
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, tt := range []struct {
		args   []string
		header string
	}{
		{nil, "TIME UID PID COMM CAP NAME AUDIT VERDICT"},
		{[]string{"-x"}, "TIME UID PID TID COMM CAP NAME AUDIT VERDICT INSETID"},
	} {
		args := append([]string{"--pid", strconv.Itoa(os.Getpid()), "--filter", "cap == 25", "--denied"}, tt.args...)
		lines := strings.Split(tooltest.Text(t, Tool, args, checks), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != tt.header {
			t.Errorf("header is %q", got)
		}
		if len(lines) != 12 || !strings.Contains(lines[1], " CAP_SYS_TIME ") || !strings.Contains(lines[1], " deny") {
			t.Errorf("%d lines, the first is %q", len(lines), lines[1])
		}
	}
}
