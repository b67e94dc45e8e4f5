package funccount

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestKernelFunctions counts a function with a known number of calls, and a hundred functions at
// once.
func TestKernelFunctions(t *testing.T) {
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: 25, Nap: time.Millisecond}).Write(t)
	for pattern, name := range map[string]string{"hrtimer_nanosleep": "hrtimer_nanosleep", "hrtimer_nanosl*": "hrtimer_nanosleep", "r:hrtimer_nanosleep": "hrtimer_nanosleep"} {
		res := tooltest.JSON(t, Tool, []string{"--comm", "native", pattern}, func() { run(t, path) })
		if got, want := counted(res), "map["+name+":25]"; got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
	res := tooltest.JSON(t, Tool, []string{"vfs_*"}, func() { run(t, path) })
	if got := counted(res); !strings.Contains(got, "vfs_open:") || !strings.Contains(got, "vfs_read:") || res.Summary.Num("lost") != 0 {
		t.Errorf("calls %s: %v", got, res.Summary)
	}
	t.Logf("%v; %s", res.Ready, res.Stderr)
}

// TestVFSCount makes and removes directories, and compares the addresses with those of the kernel.
func TestVFSCount(t *testing.T) {
	tooltest.KernelFunctions(t)
	const n = 40
	dir := filepath.Join(t.TempDir(), "dir")
	res := tooltest.JSON(t, Tool.As("vfscount"), []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		for range n {
			if err := unix.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
			if err := unix.Rmdir(dir); err != nil {
				t.Error(err)
			}
		}
	})
	addresses := symbols(t)
	got := map[string]float64{}
	for _, r := range res.Rows {
		name := r.Str("func")
		// The compiler can split a function, and callers then call the part.
		whole, _, _ := strings.Cut(name, ".")
		got[whole] = max(got[whole], r.Num("count"))
		if !strings.HasPrefix(name, "vfs_") || !addresses[name+" "+r.Str("address")] {
			t.Errorf("%s at %s is not a function of the kernel", name, r.Str("address"))
		}
	}
	if got["vfs_mkdir"] != n || got["vfs_rmdir"] != n || res.Summary.Num("lost") != 0 {
		t.Errorf("%v: %v, want %d calls of vfs_mkdir and vfs_rmdir", got, res.Summary, n)
	}
	text := tooltest.Text(t, Tool.As("vfscount"), []string{"--pid", strconv.Itoa(os.Getpid()), "100"}, func() {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(strings.Join(strings.Fields(text), " "), "ADDR FUNC COUNT") {
		t.Errorf("the titles are not those of BCC: %s", text)
	}
}

// symbols returns the names and addresses of the kernel's functions.
func symbols(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := map[string]bool{}
	for in := bufio.NewScanner(file); in.Scan(); {
		if f := strings.Fields(in.Text()); len(f) >= 3 {
			out[f[2]+" 0x"+strings.TrimLeft(f[0], "0")] = true
		}
	}
	return out
}
