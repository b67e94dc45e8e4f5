package dcsnoop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// hasFast reports whether the kernel has lookup_fast, or a specialized copy of it.
func hasFast(t *testing.T) bool {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(symbols, []byte(" t lookup_fast"))
}

// open tries to open n files that do not exist.
func open(t *testing.T, dir string, n int) {
	t.Helper()
	for i := range n {
		if _, err := unix.Open(filepath.Join(dir, fmt.Sprintf("missing-%d", i)), unix.O_RDONLY, 0); err != unix.ENOENT {
			t.Errorf("open: %v", err)
		}
	}
}

func count(res *tooltest.Result, kind, name string) int {
	return len(res.Where(func(r tooltest.Row) bool { return r.Str("lookup") == kind && r.Str("file") == name }))
}

func TestMisses(t *testing.T) {
	tooltest.KernelFunctions(t)
	const n = 20
	dir := t.TempDir()
	res := tooltest.JSON(t, Tool, self(), func() { open(t, dir, n) })
	for i := range n {
		name := fmt.Sprintf("missing-%d", i)
		if misses, refs := count(res, "M", name), count(res, "R", name); misses != 1 || refs != 0 {
			t.Errorf("%s: %d misses and %d references, want 1 miss", name, misses, refs)
		}
	}
}

func TestAll(t *testing.T) {
	tooltest.KernelFunctions(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 255))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !hasFast(t) {
		tooltest.Fails(t, Tool, []string{"-a"}, tool.ExitUnsupported, "lookup_fast")
		t.Skip("this kernel has no function lookup_fast")
	}
	res := tooltest.JSON(t, Tool, append(self(), "-a"), func() { open(t, dir, 1) })
	if misses, refs := count(res, "M", "missing-0"), count(res, "R", "missing-0"); misses != 1 || refs == 0 {
		t.Errorf("%d misses and %d references, want 1 miss and references", misses, refs)
	}
	if count(res, "R", strings.Repeat("d", 254)) == 0 {
		t.Errorf("no reference to the directory: %v", res.Events)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.KernelFunctions(t)
	dir := t.TempDir()
	out := tooltest.Text(t, Tool, self(), func() { open(t, dir, 1) })
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME(s) PID COMM T FILE" || !strings.Contains(out, " M missing-0\n") {
		t.Errorf("%q", lines)
	}
}

// TestUnsupported checks the refusal by kernels whose functions cannot be traced.
func TestUnsupported(t *testing.T) {
	traced := false
	t.Run("functions", func(t *testing.T) {
		tooltest.KernelFunctions(t)
		traced = true
	})
	if !traced {
		tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "d_lookup")
		tooltest.Fails(t, Tool, []string{"-a"}, tool.ExitUnsupported, "lookup_fast")
	}
}
