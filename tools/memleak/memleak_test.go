package memleak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// The test process uses a generated C library, whose arguments and results are known.
func library(t testing.TB, name, prefix string) *native.Library {
	t.Helper()
	var names []string
	for _, f := range []string{
		"malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc",
		"mmap", "mremap", "munmap", "free",
		"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
		"_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdlPvSt11align_val_t",
	} {
		names = append(names, prefix+f)
	}
	return native.Open(t, name, names)
}

func self(more ...string) []string {
	args := []string{"--pid", fmt.Sprint(os.Getpid())}
	if !slices.Contains(more, "--older") {
		args = append(args, "--older", "0")
	}
	return append(args, more...)
}

// only restricts the run to the generated library if the test process also has a real one.
func only(lib *native.Library, more ...string) []string {
	return self(append([]string{"--obj", lib.Path}, more...)...)
}

const (
	failed   = 0
	mapError = 1<<64 - 12 // ENOMEM
)

// step is a call of an allocator function.
type step struct {
	function string
	args     []uint64
	ret      uint64
	inner    string
}

func do(lib *native.Library, steps []step) {
	for _, s := range steps {
		c := native.Call{Ret: s.ret, Inner: s.inner}
		copy(c.Args[:], s.args)
		lib.Call(s.function, c)
	}
}

// allocations returns the rows of a run with -a, as function, address and bytes.
func allocations(rows []tooltest.Row) map[string]float64 {
	all := map[string]float64{}
	for _, r := range rows {
		all[r.Str("function")+" "+r.Str("address")] += r.Num("bytes")
	}
	return all
}

// cases are sequences of calls with the outstanding allocations after them.
func cases() map[string]struct {
	steps []step
	want  map[string]float64
} {
	aligned := new(uint64)
	*aligned = 0x9000
	at := native.Pointer(aligned)
	return map[string]struct {
		steps []step
		want  map[string]float64
	}{
		"each function": {
			[]step{
				{function: "malloc", args: []uint64{100}, ret: 0x1000},
				{function: "calloc", args: []uint64{7, 30}, ret: 0x2000},
				{function: "realloc", args: []uint64{0, 40}, ret: 0x3000},
				{function: "reallocarray", args: []uint64{0, 5, 10}, ret: 0x4000},
				{function: "aligned_alloc", args: []uint64{64, 128}, ret: 0x5000},
				{function: "memalign", args: []uint64{64, 129}, ret: 0x6000},
				{function: "valloc", args: []uint64{130}, ret: 0x7000},
				{function: "pvalloc", args: []uint64{131}, ret: 0x8000},
				{function: "posix_memalign", args: []uint64{at, 64, 132}, ret: 0},
				{function: "mmap", args: []uint64{0, 1 << 20}, ret: 0xa000},
				{function: "mremap", args: []uint64{0xb000, 10, 1 << 21}, ret: 0xb000},
				{function: "malloc", args: []uint64{0}, ret: 0xc000},
			},
			map[string]float64{
				"malloc 0x1000": 100, "calloc 0x2000": 210, "realloc 0x3000": 40, "reallocarray 0x4000": 50, "aligned_alloc 0x5000": 128,
				"memalign 0x6000": 129, "valloc 0x7000": 130, "pvalloc 0x8000": 131, "posix_memalign 0x9000": 132, "mmap 0xa000": 1 << 20,
				"mremap 0xb000": 1 << 21, "malloc 0xc000": 0,
			},
		},
		"freed": {
			[]step{
				{function: "malloc", args: []uint64{100}, ret: 0x1000},
				{function: "malloc", args: []uint64{200}, ret: 0x2000},
				{function: "free", args: []uint64{0x1000}},
				{function: "free", args: []uint64{0}},
				{function: "mmap", args: []uint64{0, 4096}, ret: 0x10000},
				{function: "munmap", args: []uint64{0x10000, 4096}},
				{function: "malloc", args: []uint64{300}, ret: 0x1000},
			},
			map[string]float64{"malloc 0x1000": 300, "malloc 0x2000": 200},
		},
		"failed": {
			[]step{
				{function: "malloc", args: []uint64{100}, ret: failed},
				{function: "calloc", args: []uint64{1 << 40, 1 << 40}, ret: failed},
				{function: "posix_memalign", args: []uint64{at, 64, 132}, ret: uint64(unix.ENOMEM)},
				{function: "mmap", args: []uint64{0, 4096}, ret: mapError},
			},
			map[string]float64{},
		},
		"realloc": {
			[]step{
				{function: "malloc", args: []uint64{100}, ret: 0x1000},
				{function: "realloc", args: []uint64{0x1000, 150}, ret: 0x1000}, // in place
				{function: "malloc", args: []uint64{200}, ret: 0x2000},
				{function: "realloc", args: []uint64{0x2000, 250}, ret: 0x3000}, // elsewhere
				{function: "malloc", args: []uint64{300}, ret: 0x4000},
				{function: "realloc", args: []uint64{0x4000, 1 << 50}, ret: failed}, // remains allocated
				{function: "malloc", args: []uint64{400}, ret: 0x5000},
				{function: "realloc", args: []uint64{0x5000, 0}, ret: 0}, // frees
				{function: "mmap", args: []uint64{0, 4096}, ret: 0x10000},
				{function: "mremap", args: []uint64{0x10000, 4096, 8192}, ret: mapError},
			},
			map[string]float64{"realloc 0x1000": 150, "realloc 0x3000": 250, "malloc 0x4000": 300, "mmap 0x10000": 4096},
		},
		// Calls within another call are part of it, and return the same result here.
		"nested": {
			[]step{
				{function: "calloc", args: []uint64{3, 100}, ret: 0x1000, inner: "malloc"},
				{function: "malloc", args: []uint64{1 << 20}, ret: 0x2000, inner: "mmap"},
				{function: "realloc", args: []uint64{0x1000, 500}, ret: 0x1000, inner: "free"},
				{function: "free", args: []uint64{0x2000, 1 << 20}, inner: "munmap"},
			},
			map[string]float64{"realloc 0x1000": 500},
		},
		"parts of mappings": {
			[]step{
				{function: "mmap", args: []uint64{0, 0x3000}, ret: 0x10000},
				{function: "munmap", args: []uint64{0x10000, 0x1000}},
				{function: "mmap", args: []uint64{0, 0x2000}, ret: 0x20000},
				{function: "munmap", args: []uint64{0x20000, 0x8000}},
				// Aligned mapping: more is mapped than needed, and both ends are unmapped.
				{function: "mmap", args: []uint64{0, 0x10000}, ret: 0x34000},
				{function: "munmap", args: []uint64{0x34000, 0x4000}},
				{function: "munmap", args: []uint64{0x40000, 0x4000}},
				{function: "munmap", args: []uint64{0x3f000, 0x1000}},
				// Unmapping the end again has no effect.
				{function: "mmap", args: []uint64{0, 0x2000}, ret: 0x50000},
				{function: "munmap", args: []uint64{0x50000, 0x2000}},
				{function: "mmap", args: []uint64{0, 0x1000}, ret: 0x50000},
				{function: "munmap", args: []uint64{0x51000, 0x1000}},
			},
			map[string]float64{"mmap 0x11000": 0x2000, "mmap 0x38000": 0x7000, "mmap 0x50000": 0x1000},
		},
	}
}

// TestAllocations checks that outstanding allocations are exact to the byte.
func TestAllocations(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so.6", "")
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			res := tooltest.JSON(t, Tool, only(lib, "-a"), func() { do(lib, c.steps) })
			if got := allocations(res.Rows); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("outstanding are %v, want %v", got, c.want)
			}
			for counter, n := range res.Summary.Object("counters") {
				if n != 0.0 && (name != "each function" || counter != "unseen_frees") {
					t.Errorf("%s is %v", counter, n)
				}
			}
			if res.Summary.Num("lost") != 0 {
				t.Errorf("lost: %v", res.Summary)
			}
		})
	}
}

//go:noinline
func leak(lib *native.Library, base, n, bytes uint64) {
	for i := range n {
		lib.Call("malloc", native.Call{Args: [7]uint64{bytes}, Ret: base + i*0x1000})
	}
}

//go:noinline
func pass(lib *native.Library, base, n, bytes uint64) {
	for i := range n {
		lib.Call("malloc", native.Call{Args: [7]uint64{bytes}, Ret: base + i*0x1000})
		lib.Call("free", native.Call{Args: [7]uint64{base + i*0x1000}})
	}
}

// TestLeak checks that a leak is one row per stack, for all threads.
func TestLeak(t *testing.T) {
	tooltest.OnHooks(t, "user", "ended", "exec")
	lib := library(t, "libc.so.6", "")
	res := tooltest.JSON(t, Tool, self(), func() {
		var threads sync.WaitGroup
		for i := range uint64(4) {
			threads.Go(func() {
				pass(lib, i<<32, 200, 64)
				leak(lib, i<<32|1<<31, 100, 1000+i)
			})
		}
		threads.Wait()
	})
	mine := res.Where(func(r tooltest.Row) bool { return strings.Contains(fmt.Sprint(r["user_stack"]), "memleak.") })
	if left := res.Summary.Object("reasons").Num("program_busy"); left > 0 {
		all := 0.0
		for _, r := range mine {
			all += r.Num("count")
		}
		if all < 400-left || all > 400+left {
			t.Errorf("%.0f allocations, want 400, give or take %.0f", all, left)
		}
		return
	}
	if len(mine) != 1 {
		t.Fatalf("%d rows: %v", len(mine), res.Rows)
	}
	r := mine[0]
	if r.Num("bytes") != 400600 || r.Num("count") != 400 || r.Num("pid") != float64(os.Getpid()) || r.Has("kernel_stack") {
		t.Errorf("row is %v, want 400,600 bytes in 400 allocations", r)
	}
	if text := fmt.Sprint(r["user_stack"]); !strings.Contains(text, "memleak.leak]") {
		t.Errorf("stack is %s", text)
	}
	if lost := res.Summary.Num("lost"); lost != 0 {
		t.Errorf("lost %v", lost)
	}
}

// If everything was freed, the message does not say that nothing happened.
func TestNoneOutstanding(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so.6", "")
	res := tooltest.JSON(t, Tool, only(lib), func() { pass(lib, 1<<32, 400, 64) })
	if len(res.Rows) > 0 || !strings.Contains(res.Stderr, "no output: no outstanding allocation matched in ") {
		t.Errorf("%d rows, want none, and a message: %s", len(res.Rows), res.Stderr)
	}
}

// TestWanted checks the filters for allocations.
func TestWanted(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so.6", "")
	for _, c := range []struct {
		args     []string
		from, to float64
	}{
		{[]string{"-z", "500"}, 501, 501}, // 500 to 1000 of 1 to 1000
		{[]string{"-Z", "499"}, 499, 499},
		{[]string{"-z", "100", "-Z", "199"}, 100, 100},
		{[]string{"-s", "10"}, 100 - 40, 100 + 40}, // four standard deviations
		{[]string{"--max-allocations", "300"}, 300, 300},
		{[]string{"--older", "600000"}, 0, 0},
	} {
		res := tooltest.JSON(t, Tool, only(lib, c.args...), func() {
			for i := range uint64(1000) {
				lib.Call("malloc", native.Call{Args: [7]uint64{i + 1}, Ret: (i + 1) << 20})
			}
		})
		got := 0.0
		for _, r := range res.Rows {
			got += r.Num("count")
		}
		if got < c.from || got > c.to {
			t.Errorf("%q: %v allocations, want %v to %v", c.args, got, c.from, c.to)
		}
		if want := 1000 - got; c.args[0] == "--max-allocations" && res.Summary.Object("reasons").Num("map_full") != want {
			t.Errorf("%q: %v, want %v lost because the map is full", c.args, res.Summary, want)
		}
	}
}

// TestReports checks that reports are printed while the process runs, each with all outstanding
// allocations.
func TestReports(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so.6", "")
	res := tooltest.JSON(t, Tool, only(lib, "0.5", "2"), func() { leak(lib, 1<<20, 10, 10) })
	if len(res.Rows) == 0 || res.Rows[len(res.Rows)-1].Num("bytes") != 100 {
		t.Errorf("rows are %v", res.Rows)
	}
}

// TestObject selects another file with the allocator, and a prefix of its function names.
func TestObject(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "liballoc.so", "je_")
	for _, object := range []string{lib.Path, "liballoc.so*"} {
		res := tooltest.JSON(t, Tool, self("-O", object, "-S", "je_"), func() {
			lib.Call("je_malloc", native.Call{Args: [7]uint64{100}, Ret: 0x1000})
			lib.Call("je_malloc", native.Call{Args: [7]uint64{50}, Ret: 0x2000})
			lib.Call("je_free", native.Call{Args: [7]uint64{0x1000}})
		})
		if len(res.Rows) != 1 || res.Rows[0].Num("bytes") != 50 {
			t.Errorf("%s: rows are %v", object, res.Rows)
		}
	}
}

// TestTrace checks that each allocation and each free is a row.
func TestTrace(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so.6", "")
	res := tooltest.JSON(t, Tool, only(lib, "-t"), func() {
		do(lib, []step{
			{function: "malloc", args: []uint64{100}, ret: 0x1000},
			{function: "realloc", args: []uint64{0x1000, 150}, ret: 0x2000},
			{function: "free", args: []uint64{0x2000}},
			{function: "mmap", args: []uint64{0, 8192}, ret: 0x10000},
			{function: "munmap", args: []uint64{0x10000, 4096}},
		})
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("function"), " ", r.Str("address"), " ", r.Num("bytes")))
	}
	want := "malloc 0x1000 100; free 0x1000 100; realloc 0x2000 150; free 0x2000 150; mmap 0x10000 8192; munmap 0x10000 4096"
	if strings.Join(got, "; ") != want {
		t.Errorf("rows are %q, want %s", got, want)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	lib := library(t, "libc.so.6", "")
	out := tooltest.Text(t, Tool, only(lib), func() { leak(lib, 1<<20, 10, 10) })
	if !strings.Contains(out, "] Top 1 stacks with outstanding allocations:\n100 bytes in 10 allocations from stack\n    malloc\n") {
		t.Errorf("text is %s", out)
	}
	out = tooltest.Text(t, Tool, only(lib, "-a"), func() { leak(lib, 1<<20, 10, 10) })
	if strings.Count(out, "addr = 0x10") != 10 || !strings.Contains(out, "addr = 0x100000 size = 10\n") {
		t.Errorf("text is %s", out)
	}
	out = tooltest.Text(t, Tool, only(lib, "--output", "folded"), func() { leak(lib, 1<<20, 10, 10) })
	if !strings.Contains(out, "memleak.leak;") || !strings.Contains(out, ";malloc 100\n") {
		t.Errorf("folded is %s", out)
	}
}

// TestCommand checks that a command is traced from its first instruction on, without allocations of
// the shell.
func TestCommand(t *testing.T) {
	tooltest.OnHooks(t, "user", "exec", "ended")
	if !tooltest.IsDynamic(t, "ls") {
		t.Skip("ls is statically linked and has no symbols")
	}
	res := tooltest.JSON(t, Tool, []string{"-c", "ls -d /"}, nil)
	if len(res.Rows) == 0 {
		t.Fatalf("ls has no outstanding allocations: %v", res.Summary)
	}
	for _, r := range res.Rows {
		if text := fmt.Sprint(r["user_stack"]); strings.Contains(text, "/sh ") || strings.Contains(text, "/dash ") || r.Num("bytes") == 0 {
			t.Errorf("row of the shell: %v", r)
		}
	}
	if n := res.Summary.Object("counters").Num("missed_frees"); n != 0 {
		t.Errorf("missed_frees is %v", n)
	}
}

// TestCommandsChildren checks that all processes of a command are traced, also those that its shell
// starts.
func TestCommandsChildren(t *testing.T) {
	tooltest.OnHooks(t, "user", "exec", "ended")
	if !tooltest.IsDynamic(t, "ls") {
		t.Skip("ls is statically linked and has no symbols")
	}
	res := tooltest.JSON(t, Tool, []string{"-c", "ls -d / >/dev/null; (ls -d / >/dev/null; :); :"}, nil)
	left := map[float64]float64{}
	for _, r := range res.Rows {
		if r.Str("function") == "mmap" {
			left[r.Num("pid")] += r.Num("bytes")
		}
	}
	pids := slices.Collect(maps.Keys(left))
	if len(pids) != 2 || left[pids[0]] != left[pids[1]] || left[pids[0]] == 0 {
		t.Errorf("outstanding mappings by process: %v, want equal sizes of two processes: %v", left, res.Rows)
	}
	if n := tooltest.Lost(res.Summary); n != 0 {
		t.Errorf("%d lost", n)
	}
}
