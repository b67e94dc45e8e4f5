package writeback

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// dirty writes n pages to a file of a new file system on a disk of its own, and returns the
// directory and the number of the disk. The pages are not written to the disk.
func dirty(t *testing.T, n int) (dir *os.File, disk string, write func()) {
	t.Helper()
	mounts := tooltest.NewMounts(t)
	path := mounts.MountExt4(t)
	dir, err := os.Open(mounts.At(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	disk = fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	return dir, disk, func() {
		name := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), "file")
		if err := os.WriteFile(name, make([]byte, n*os.Getpagesize()), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// TestSync compares the runs of syncfs(2) with the pages that it must write, and the time that it
// took.
func TestSync(t *testing.T) {
	const n = 25
	dir, disk, write := dirty(t, n)
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	res := tooltest.JSON(t, Tool, nil, func() {
		write()
		begin := time.Now()
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			t.Error(err)
		}
		took = time.Since(begin)
	})
	var pages, span float64
	waits := false
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("device") == disk && r.Str("reason") == "sync" }) {
		pages, span = pages+r.Num("pages"), span+r.Num("latency_ns")
		if all, _ := r["sync_all"].(bool); all {
			waits = true
		}
		if r.Num("latency_ns") <= 0 || r.Num("pages") < 0 {
			t.Errorf("row %v", r)
		}
	}
	if pages != n || !waits || span <= 0 || span > float64(took) {
		t.Errorf("%v pages in %v ns, waits: %t; want %d pages in at most %d ns: %v", pages, span, waits, n, took, res.Events)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir, disk, write := dirty(t, 3)
	out := tooltest.Text(t, Tool, []string{"--filter", `device == "` + disk + `" and pages > 0`}, func() {
		write()
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME DEVICE PAGES REASON ms" || len(lines) < 3 {
		t.Errorf("%q", lines)
	}
}
