package tool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools/opensnoop"
)

// run runs opensnoop and calls load when it is ready. It returns the exit code and
// standard error.
func run(t testing.TB, ctx context.Context, out io.Writer, load func(), args ...string) (int, string) {
	t.Helper()
	r, w := io.Pipe()
	defer w.Close()
	var stderr bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for ready := false; ; {
			n, err := r.Read(buf)
			stderr.Write(buf[:n])
			if !ready && load != nil && strings.Contains(stderr.String(), ": ready: ") {
				ready = true
				go load()
			}
			if err != nil {
				return
			}
		}
	}()
	code := tool.Run(ctx, opensnoop.Tool, args, out, w)
	w.Close()
	<-done
	return code, stderr.String()
}

func pid() string { return strconv.Itoa(os.Getpid()) }

func open(path string) {
	if fd, err := unix.Open(path, unix.O_RDONLY, 0); err == nil {
		unix.Close(fd)
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--no-such-flag"}, "unknown flag"},
		{[]string{"argument"}, `unexpected argument "argument"`},
		{[]string{"--pid", "-1"}, `"-1" is not a`},
		{[]string{"--pid", "4294967296"}, "4294967296 is out of range"},
		{[]string{"--pid", strings.Repeat("1,", 16) + "1"}, "--pid: 17 IDs: at most 16"},
		{[]string{"--duration", "0"}, "not greater than zero"},
		{[]string{"--output", "xml"}, "it must be text, json or csv"},
		{[]string{"--columns", "pid,none"}, "no such column"},
		{[]string{"--filter", "nosuch == 1"}, "unknown name nosuch"},
		{[]string{"--any-btf"}, "usage: --any-btf needs --btf"},
		{[]string{"--btf", "/no/such"}, "usage: --btf (or CORESCOPE_BTF): read BTF of /no/such: open /no/such: no such file"},
		{[]string{"--btf", "/bin/true"}, "usage: --btf (or CORESCOPE_BTF): read BTF of /bin/true: "},
		{[]string{"--btf", "/etc/passwd"}, "usage: --btf (or CORESCOPE_BTF): read BTF of /etc/passwd: "},
		{[]string{"--uid", "no such user"}, "no such user"},
		{[]string{"--cgroup", "/no/such"}, "no such cgroup"},
		{[]string{"--container", "none-such"}, "none-such"},
		{[]string{"--cgroup", "/", "--container", "x"}, "cannot be combined"},
		{[]string{"--name", strings.Repeat("x", 17)}, "--name: 17 bytes are too long"},
		{[]string{"--hook", "open=none"}, `usage: force hook "open" to attach type "none": the hook has no such attach type; it has: btf, raw`},
		{[]string{"--hook", "open"}, `usage: force hook "open": missing attach type, as in open=btf`},
		{[]string{"--hook", "none=btf"}, `usage: force hook "none": the tool has no such hook; it has: command, open, uring`},
		{[]string{"--flag-filter", "O_NONE"}, `--flag-filter: "O_NONE" is not a flag of open(2)`},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			tooltest.Root(t)
			var out bytes.Buffer
			code, stderr := run(t, t.Context(), &out, nil, tt.args...)
			if code != tool.ExitUsage || !strings.Contains(stderr, tt.says) || out.Len() > 0 {
				t.Errorf("exit code %d, standard error %q, want 2 and %q", code, stderr, tt.says)
			}
		})
	}
}

// TestOtherBTF checks that --btf refuses the BTF of another kernel, with which programs would read
// wrong fields, and accepts a copy of the running kernel's BTF.
func TestOtherBTF(t *testing.T) {
	tooltest.Root(t)
	own, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied, other := filepath.Join(dir, "copy"), filepath.Join(dir, "other")
	changed := bytes.Clone(own)
	changed[len(changed)-2] ^= 1 // the last letter of the last name
	if err := errors.Join(os.WriteFile(copied, own, 0o600), os.WriteFile(other, changed, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"--btf", copied}, tool.ExitOK},
		{[]string{"--btf", other}, tool.ExitUsage},
		{[]string{"--btf", other, "--any-btf"}, tool.ExitOK},
	} {
		code, stderr := run(t, t.Context(), io.Discard, nil, append(tt.args, "--explain")...)
		if code != tt.code || (code == tool.ExitUsage) != strings.Contains(stderr, "not the BTF of the running kernel") {
			t.Errorf("%q: exit code %d, want %d: %s", tt.args, code, tt.code, stderr)
		}
	}
	t.Setenv("CORESCOPE_BTF", other)
	if code, stderr := run(t, t.Context(), io.Discard, nil, "--explain"); code != tool.ExitUsage {
		t.Errorf("CORESCOPE_BTF: exit code %d, want 2: %s", code, stderr)
	}
}

func TestNotPermitted(t *testing.T) {
	tooltest.Root(t)
	type result struct {
		code   int
		stderr string
	}
	done := make(chan result)
	go func() {
		// The thread exits with its goroutine, so no other test runs without privileges.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- result{-1, errno.Error()}
			return
		}
		var stderr bytes.Buffer
		code := tool.Run(t.Context(), opensnoop.Tool, nil, io.Discard, &stderr)
		done <- result{code, stderr.String()}
	}()
	if r := <-done; r.code != tool.ExitNotPermitted || !strings.Contains(r.stderr, "CAP_BPF, CAP_PERFMON") {
		t.Errorf("exit code %d, want 3: %s", r.code, r.stderr)
	}
}

func TestLimitAndDuration(t *testing.T) {
	tooltest.Root(t)
	path := filepath.Join(t.TempDir(), "x")
	var out bytes.Buffer
	code, stderr := run(t, t.Context(), &out, func() {
		for range 10 {
			open(path)
		}
	}, "--pid", pid(), "--path", path, "--limit", "3", "--no-header")
	if rows := strings.Count(out.String(), "\n"); code != 0 || rows != 3 {
		t.Errorf("--limit 3: exit code %d, %d rows: %s", code, rows, stderr)
	}
	start := time.Now()
	code, stderr = run(t, t.Context(), io.Discard, nil, "--pid", "1", "--duration", "200ms")
	if span := time.Since(start); code != 0 || span < 200*time.Millisecond {
		t.Errorf("--duration 200ms: exit code %d after %v: %s", code, span, stderr)
	}
}

// TestStrict fills the smallest ring buffer while the output is blocked, so that events are lost.
// Rows and lost events must equal the opens, and the exit code must be 5.
func TestStrict(t *testing.T) {
	tooltest.Root(t)
	path := filepath.Join(t.TempDir(), "x")
	const opens = 20_000
	ctx, cancel := context.WithCancel(t.Context())
	out := &stuck{free: make(chan struct{})}
	code, stderr := run(t, ctx, out, func() {
		for range opens {
			open(path)
		}
		close(out.free)
		cancel()
	}, "--pid", pid(), "--path", path, "--buffer-pages", "1", "--strict", "--no-header")
	if code != tool.ExitLost {
		t.Errorf("exit code %d, want 5: %s", code, stderr)
	}
	var lost int
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "in total") {
			fmt.Sscanf(line, "opensnoop: lost %d in total", &lost)
		}
	}
	if rows := bytes.Count(out.Bytes(), []byte("\n")); lost == 0 || rows+lost != opens {
		t.Errorf("%d rows and %d lost of %d: %s", rows, lost, opens, stderr)
	}
}

// TestFilterFails uses a filter that fails for one of two rows: that row is counted as lost, and the
// other one is shown.
func TestFilterFails(t *testing.T) {
	tooltest.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	code, stderr := run(t, ctx, &out, func() {
		open("/none/a")
		open("/none/ab")
		cancel()
	}, "--pid", pid(), "--path", "/none/*", "--no-header", "--strict", "--filter", `path[7:8] == "b" or 1 % (len(path) - 7) == 1`)
	if rows := strings.Count(out.String(), "\n"); rows != 1 || code != tool.ExitLost {
		t.Errorf("exit code %d, rows %q", code, out.String())
	}
	if strings.Count(stderr, "row excluded") != 1 || !strings.Contains(stderr, "lost 1 in total: filter failed 1") {
		t.Errorf("stderr: %s", stderr)
	}
}

// TestNothing checks that a run without output reports the possible reasons.
func TestNothing(t *testing.T) {
	tooltest.Root(t)
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { child.Process.Kill(); child.Wait() }
	defer end()
	id := strconv.Itoa(child.Process.Pid)
	for _, tt := range []struct {
		args []string
		load func()
		want string
	}{
		{[]string{"--pid", pid(), "--path", "/none/a"}, func() { open("/none/a") }, ""},
		{[]string{"--pid", pid(), "--path", "/none/a", "--filter", "pid == 0"}, func() { open("/none/a") }, "no output: filters excluded 1 row\n"},
		{[]string{"--pid", id}, func() {}, "no output: no event matched in "},
		{[]string{"--pid", pid(), "--path", "/none/b"}, func() { open("/none/a") }, "s at open: "},
		{[]string{"--pid", id}, end, "; process " + id + " has exited\n"},
	} {
		for _, format := range []string{"csv", "text"} {
			if format == "csv" && tt.want != "" && strings.Contains(tt.want, "exited") {
				continue // it exits once
			}
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			code, stderr := run(t, ctx, &out, func() { tt.load(); cancel() }, append(tt.args, "--output", format)...)
			cancel()
			if code != tool.ExitOK || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "no output") != (tt.want != "") {
				t.Errorf("%q: exit code %d, stderr %q, want %q", tt.args, code, stderr, tt.want)
			}
		}
	}
}

// stuck is an output that blocks until free is closed.
type stuck struct {
	bytes.Buffer
	free chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.free
	return s.Buffer.Write(b)
}

func TestClosedPipe(t *testing.T) {
	tooltest.Root(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// There are no rows to write: the closed pipe itself must end the run.
	code, stderr := run(t, t.Context(), w, func() { r.Close() }, "--path", "/none", "--no-header")
	if code != tool.ExitOK {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestUnwritable(t *testing.T) {
	tooltest.Root(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	code, stderr := run(t, t.Context(), full, nil, "--path", "/none")
	if code != tool.ExitFailure || !strings.Contains(stderr, "no space left") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestNothingLeft checks the file descriptors of this process after runs that end in different ways.
// Nothing is pinned, so the kernel has released every object without a descriptor.
func TestNothingLeft(t *testing.T) {
	tooltest.Root(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"--duration", "50ms"}, {"--explain"}, {"--columns", "none"}, {"--hook", "open=raw"}, {"--perf-buffer"}, {"--stats"},
	} {
		run(t, canceled, io.Discard, nil, args...)
		if left := bpfDescriptors(t); len(left) > 0 {
			t.Errorf("%v: open descriptors remain: %v", args, left)
		}
	}
}

func bpfDescriptors(t *testing.T) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && (strings.Contains(to, "bpf") || strings.Contains(to, "perf_event")) {
			left = append(left, to)
		}
	}
	return left
}
