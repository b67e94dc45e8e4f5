package dcstat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

const workerName = "dcstat-worker"

// open tries to open n files that do not exist, on a thread with the name of the worker.
func open(t *testing.T, dir string, n int) {
	t.Helper()
	tooltest.RenameThread(t, workerName)
	for i := range n {
		if _, err := unix.Open(filepath.Join(dir, fmt.Sprintf("missing-%d", i)), unix.O_RDONLY, 0); err != unix.ENOENT {
			t.Errorf("open: %v", err)
		}
	}
}

// supported skips the test unless the tool can trace its functions.
func supported(t *testing.T) {
	t.Helper()
	tooltest.KernelFunctions(t)
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(symbols, []byte(" t lookup_fast")) {
		tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "lookup_fast")
		t.Skip("this kernel has no function lookup_fast")
	}
}

func TestCounts(t *testing.T) {
	supported(t)
	const n = 40
	dir := t.TempDir()
	res := tooltest.JSON(t, Tool, []string{"--comm", workerName, "60"}, func() { open(t, dir, n) })
	if len(res.Rows) != 1 {
		t.Fatalf("%d rows, want 1", len(res.Rows))
	}
	r := res.Rows[0]
	components := float64(n * (strings.Count(dir, "/") + 1))
	if r.Num("misses") != n || r.Num("slow") < n || r.Num("refs") < components {
		t.Errorf("row %v, want %d misses and at least %v references", r, n, components)
	}
	if want := 100 * (r.Num("refs") - n) / r.Num("refs"); r.Num("hit_ratio_percent") < want-0.01 || r.Num("hit_ratio_percent") > want+0.01 {
		t.Errorf("hit ratio %v, want %v", r["hit_ratio_percent"], want)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	supported(t)
	out := tooltest.Text(t, Tool, []string{"--comm", "nobody", "60"}, func() {})
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != "TIME REFS/s SLOW/s MISS/s HIT%" ||
		!strings.HasSuffix(strings.Join(strings.Fields(lines[1]), " "), " 0 0 0 -") {
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
		tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "lookup_fast")
	}
}
