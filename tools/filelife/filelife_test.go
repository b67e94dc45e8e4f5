package filelife

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

func must(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

// create creates a file and returns its inode number.
func create(t *testing.T, path string) uint64 {
	t.Helper()
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	must(t)(unix.Fstat(fd, &st))
	return st.Ino
}

// TestLives deletes files in several ways, and compares their ages with the time around the calls.
func TestLives(t *testing.T) {
	tooltest.KernelFunctions(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	create(t, file("old"))
	type life struct {
		name        string
		replaced    bool
		inode       uint64
		least, most time.Duration
	}
	var want []life
	res := tooltest.JSON(t, Tool, append(self(), "-F"), func() {
		ok := must(t)
		live := func(last string, replaced bool, between, end func()) {
			before := time.Now()
			inode := create(t, file("new"))
			created := time.Now()
			between()
			removal := time.Now()
			end()
			want = append(want, life{last, replaced, inode, removal.Sub(created), time.Since(before)})
		}
		nothing := func() {}
		live("new", false, func() { time.Sleep(10 * time.Millisecond) }, func() { ok(unix.Unlink(file("new"))) })
		live("renamed", false, func() { ok(unix.Rename(file("new"), file("renamed"))) }, func() { ok(unix.Unlink(file("renamed"))) })
		live("linked", false, func() {
			ok(unix.Link(file("new"), file("linked")))
			ok(unix.Unlink(file("new")))
		}, func() { ok(unix.Unlink(file("linked"))) })
		live("new", true, nothing, func() { ok(unix.Rename(file("old"), file("new"))) })
		ok(unix.Unlink(file("new"))) // was created before the run
		ok(unix.Mkdir(file("dir"), 0o700))
		ok(unix.Rmdir(file("dir")))
		create(t, file("stays"))
	})
	rows := res.Where(func(r tooltest.Row) bool { return strings.HasPrefix(r.Str("path"), dir) })
	if len(rows) != len(want) || len(rows) != len(res.Events) {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), len(want), res.Events)
	}
	for i, w := range want {
		r := rows[i]
		replaced, _ := r["replaced"].(bool)
		if r.Str("file") != w.name || r.Str("path") != file(w.name) || replaced != w.replaced || r.Num("inode") != float64(w.inode) ||
			int(r.Num("creator_pid")) != os.Getpid() {
			t.Errorf("row %v, want %+v", r, w)
		}
		if age := time.Duration(r.Num("age_ns")); age < w.least || age > w.most {
			t.Errorf("%s: age %v, want %v to %v", w.name, age, w.least, w.most)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.KernelFunctions(t)
	path := filepath.Join(t.TempDir(), "short")
	out := tooltest.Text(t, Tool, self(), func() {
		create(t, path)
		must(t)(unix.Unlink(path))
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PID COMM AGE(s) FILE" || len(lines) != 3 || !strings.HasSuffix(lines[1], " short") {
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
		tooltest.Fails(t, Tool, nil, tool.ExitUnsupported, "d_delete")
	}
}
