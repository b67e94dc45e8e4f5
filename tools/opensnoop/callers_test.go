package opensnoop

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

//go:noinline
func openOuter(path string) { openInner(path); _ = path }

//go:noinline
func openInner(path string) { closing(unix.Open(path, unix.O_CREAT|unix.O_RDONLY, 0o600)) }

// callers returns the functions of this package in the stack of a row, innermost first.
func callers(r tooltest.Row) (names []string) {
	frames, _ := r["user_stack"].([]any)
	for _, f := range frames {
		frame, _ := f.(map[string]any)
		symbol, _ := frame["symbol"].(string)
		if _, name, ok := strings.Cut(symbol, "tools/opensnoop."); ok {
			names = append(names, name)
		}
	}
	return names
}

// TestCallers checks stacks after long paths and without a path.
func TestCallers(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"-c"}, {"-c", "-F"}} {
		file := filepath.Join(dir, strings.Repeat("x", 200))
		res := tooltest.JSON(t, Tool, append(self(), args...), func() { openOuter(file) })
		rows := res.Where(below(file))
		if len(rows) != 1 {
			t.Fatalf("%v: %d rows, want 1: %v", args, len(rows), rows)
		}
		if got := callers(rows[0]); len(got) < 2 || !slices.Equal(got[:2], []string{"openInner", "openOuter"}) {
			t.Errorf("%v: callers are %v: %v", args, got, rows[0])
		}
	}
}

// TestFramelessCallers checks that callers of functions without frame pointers are found with
// .eh_frame.
func TestFramelessCallers(t *testing.T) {
	tooltest.Root(t)
	pid := strconv.Itoa(tooltest.Frameless(t).Process.Pid)
	res := tooltest.JSON(t, Tool, []string{"-c", "--pid", pid, "--limit", "20"}, nil)
	for _, r := range res.Events {
		if got := r.Symbols("user_stack"); !slices.Equal(got, tooltest.FramelessChain()) {
			t.Errorf("callers are %v: %v", got, r)
		}
	}
	if len(res.Events) != 20 {
		t.Errorf("%d rows, want 20", len(res.Events))
	}
}

// TestUringCallers checks io_uring, which reads the path when the task submits the request.
func TestUringCallers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "by-uring")
	ring := newUring(t)
	res := tooltest.JSON(t, Tool, append(self(), "-c"), func() { ring.openat(file, unix.O_CREAT|unix.O_RDWR, 0o600) })
	needUringHook(t, res)
	rows := res.Where(below(file))
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(rows), rows)
	}
	if got := callers(rows[0]); !slices.ContainsFunc(got, func(name string) bool { return strings.Contains(name, "openat") }) {
		t.Errorf("callers are %v: %v", got, rows[0])
	}
}

func TestNoCallers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	res := tooltest.JSON(t, Tool, self(), func() { openOuter(file) })
	for _, r := range res.Where(below(file)) {
		if r.Has("user_stack") {
			t.Errorf("stack without -c: %v", r)
		}
	}
}

func TestCallersText(t *testing.T) {
	tooltest.AnyAttachType(t)
	file := filepath.Join(t.TempDir(), "x")
	out := tooltest.Text(t, Tool, append(self(), "-c"), func() { openOuter(file) })
	_, after, ok := strings.Cut(out, file+"\n")
	inner, outer := strings.Index(after, "opensnoop.openInner"), strings.Index(after, "opensnoop.openOuter")
	if !ok || inner < 0 || outer < inner {
		t.Errorf("text is %s", out)
	}
}
