package memleak

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// cxxSteps are calls of operator new and operator delete in an allocator that defines its own.
func cxxSteps() []step {
	return []step{
		{function: "_Znwm", args: []uint64{100}, ret: 0x1000},
		{function: "_Znam", args: []uint64{101}, ret: 0x2000},
		{function: "_ZnwmRKSt9nothrow_t", args: []uint64{102}, ret: 0x3000},
		{function: "_ZnwmSt11align_val_t", args: []uint64{103, 64}, ret: 0x4000},
		{function: "_ZnamSt11align_val_tRKSt9nothrow_t", args: []uint64{104, 64}, ret: 0x5000},
		{function: "_ZnwmRKSt9nothrow_t", args: []uint64{105}, ret: failed},
		{function: "_Znwm", args: []uint64{106}, ret: 0x6000, inner: "malloc"},
		{function: "_ZdlPvm", args: []uint64{0x1000, 100}},
		{function: "_ZdaPv", args: []uint64{0x2000}, inner: "free"},
		{function: "_ZdlPvSt11align_val_t", args: []uint64{0x4000, 64}, inner: "_ZdlPv"},
		{function: "_ZdlPv", args: []uint64{0}},
	}
}

func TestOperators(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libjemalloc.so.2", "")
	res := tooltest.JSON(t, Tool, only(lib, "-a"), func() { do(lib, cxxSteps()) })
	want := map[string]float64{"operator new 0x3000": 102, "operator new 0x5000": 104, "operator new 0x6000": 106}
	if got := allocations(res.Rows); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("outstanding are %v, want %v", got, want)
	}
	if n := res.Summary.Object("counters").Num("unseen_frees"); n != 0 {
		t.Errorf("unseen_frees is %v: all freed allocations were observed", n)
	}
}

// TestMusl uses the file name of musl's libc in Debian.
func TestMusl(t *testing.T) {
	tooltest.OnHooks(t, "user")
	lib := library(t, "libc.so", "")
	res := tooltest.JSON(t, Tool, self(), func() { leak(lib, 1<<20, 10, 10) })
	mine := res.Where(func(r tooltest.Row) bool { return strings.Contains(fmt.Sprint(r["user_stack"]), "memleak.leak]") })
	if len(mine) != 1 || mine[0].Num("bytes") != 100 {
		t.Errorf("rows are %v, want one of 100 bytes", mine)
	}
}

// cxx is a program that keeps 400 objects of 120,400 bytes in total, deletes 3,000 others, and
// catches the exceptions of 100 failing calls of operator new.
const cxx = `
#include <cstdio>
#include <new>
struct alignas(64) aligned { char bytes[192]; };
static void *volatile keep;
int main(int argc, char **) {
	volatile size_t huge = argc > 1 ? 1ull << 61 : 0;
	puts("begun"); fflush(stdout);
	getchar();
	for (int i = 0; i < 100; i++) {
		try {
			if (huge)
				keep = new char[huge];
		} catch (std::bad_alloc &) {
		}
		keep = new char[1000];
		keep = new long;
		keep = new aligned;
		keep = new (std::nothrow) int;
	}
	for (int i = 0; i < 1000; i++) {
		keep = new long; delete (long *)keep;
		keep = new char[77]; delete[] (char *)keep;
		keep = new aligned; delete (aligned *)keep;
	}
	puts("done"); fflush(stdout);
	getchar();
}
`

// TestAllocators runs a C++ program with each installed allocator. The comment on the program
// states its outstanding allocations.
func TestAllocators(t *testing.T) {
	tooltest.OnHooks(t, "user")
	path := tooltest.CompileCXX(t, cxx, "-std=c++17", "-O1", "-fno-builtin")
	for name, pattern := range map[string]string{"libstdc++": "", "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(path)
			if name != "mimalloc" { // it aborts the program instead of throwing
				cmd.Args = append(cmd.Args, "throw")
			}
			if pattern != "" {
				found, _ := filepath.Glob("/usr/lib/*-linux-gnu/" + pattern)
				if len(found) == 0 {
					t.Skipf("%s is not installed", pattern)
				}
				cmd.Env = []string{"LD_PRELOAD=" + found[0]}
			}
			testAllocator(t, cmd)
		})
	}
}

func testAllocator(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program failed: %v", err)
		}
	}()
	lines := bufio.NewScanner(out)
	lines.Scan() // printed after the allocator is loaded
	res := tooltest.JSON(t, Tool, []string{"--pid", fmt.Sprint(cmd.Process.Pid), "--older", "0"}, func() {
		fmt.Fprintln(in)
		lines.Scan()
	})
	bytes, count := 0.0, 0.0
	for _, r := range res.Rows {
		if names := strings.Join(r.Symbols("user_stack"), " "); strings.Contains(names, "main") {
			bytes += r.Num("bytes")
			count += r.Num("count")
		}
	}
	if bytes != 120400 || count != 400 {
		t.Errorf("%v bytes in %v allocations, want 120,400 in 400: %v", bytes, count, res.Rows)
	}
}
