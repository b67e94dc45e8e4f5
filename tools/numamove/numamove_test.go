package numamove

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// vmstat returns a counter of /proc/vmstat.
func vmstat(t *testing.T, name string) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut("\n"+string(text), "\n"+name+" ")
	if !found {
		t.Skipf("this kernel does not count %s", name)
	}
	n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// scatter allocates every other page of a large area, so that compaction moves pages.
func scatter(t *testing.T) {
	t.Helper()
	const size = 64 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for at := 0; at < size; at += page {
		memory[at] = 1
	}
	for at := 0; at < size; at += 2 * page {
		if err := unix.Madvise(memory[at:at+page], unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
}

func sum(rows []tooltest.Row, key string) (n float64) {
	for _, r := range rows {
		n += r.Num(key)
	}
	return n
}

// TestReasons compares the pages that compaction moves with the kernel's own count. Other tasks can
// migrate pages between two readings, so one of several attempts must agree. None of these pages is
// misplaced.
func TestReasons(t *testing.T) {
	tooltest.Root(t)
	const trigger = "/proc/sys/vm/compact_memory"
	if _, err := os.Stat(trigger); err != nil {
		t.Skipf("the kernel cannot compact memory (CONFIG_COMPACTION): %v", err)
	}
	compact := func() {
		if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
	for _, reason := range []string{"all", "compaction"} {
		for attempt := 1; ; attempt++ {
			var moved float64
			var took time.Duration
			scatter(t)
			res := tooltest.JSON(t, Tool, []string{"--reason", reason, "60"}, func() {
				before, begin := vmstat(t, "pgmigrate_success"), time.Now()
				compact()
				took = time.Since(begin)
				moved = vmstat(t, "pgmigrate_success") - before
			})
			pages, n := sum(res.Rows, "pages"), sum(res.Rows, "migrations")
			t.Logf("%v pages in %v migrations, the kernel counts %v", pages, n, moved)
			if pages == moved && n > 0 {
				if ns := res.Rows[0]["total_ns"]; ns != nil && (ns.(float64) <= 0 || ns.(float64) > float64(took)) {
					t.Errorf("migrations took %v ns, the load %v", ns, took)
				}
				break
			}
			if attempt == 5 {
				t.Fatalf("%v pages in %v migrations, the kernel counts %v", pages, n, moved)
			}
		}
	}
	scatter(t)
	var before, after [2]float64
	count := func() [2]float64 {
		return [2]float64{vmstat(t, "pgmigrate_success"), vmstat(t, "numa_pages_migrated")}
	}
	res := tooltest.JSON(t, Tool, []string{"60"}, func() {
		before = count()
		compact()
		after = count()
	})
	if n := sum(res.Rows, "pages"); n != after[1]-before[1] {
		t.Errorf("%v misplaced pages, the kernel counts %v of %v", n, after[1]-before[1], after[0]-before[0])
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, []string{"100ms", "2"}, nil)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "TIME NUMA_migrations NUMA_migrations_ms" || len(lines) != 3 {
		t.Errorf("%q", out)
	}
	tooltest.Fails(t, Tool, []string{"--reason", "boredom"}, tool.ExitUsage, "compaction")
}

// TestOneNode expects a notice on a machine that has nothing to show.
func TestOneNode(t *testing.T) {
	tooltest.Root(t)
	var errOut strings.Builder
	if code := tool.Run(t.Context(), Tool, []string{"--duration", "1ms"}, io.Discard, &errOut); code != tool.ExitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	if one := system.MemoryNodes("/") == 1; one != strings.Contains(errOut.String(), "has one NUMA node") {
		t.Errorf("one node: %v, notices: %s", one, &errOut)
	}
}
