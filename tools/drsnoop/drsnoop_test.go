package drsnoop

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// readEnv makes the test binary read this file.
const readEnv = "CORESCOPE_READ"

const (
	limit = 64 << 20
	size  = 256 << 20
)

func TestMain(m *testing.M) {
	path := os.Getenv(readEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	// Only a buffer of this size, so that the file is read by few system calls.
	if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil || n != size {
		panic(fmt.Sprint(n, err))
	}
}

// reader reads a disk whose page cache exceeds the limit of its cgroup: each page beyond the limit
// requires that another one is reclaimed.
type reader struct {
	disk, dir string
	pid       int
}

func newReader(t *testing.T, name string) *reader {
	t.Helper()
	dir, _ := tooltest.MemoryCgroup(t, name, limit)
	back, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(back) })
	if err := unix.Ftruncate(back, size); err != nil {
		t.Fatal(err)
	}
	return &reader{disk: tooltest.LoopOver(t, back, 0).Path, dir: dir}
}

func (r *reader) read(t *testing.T) {
	t.Helper()
	cmd := tooltest.InCgroup(r.dir, os.Args[0])
	cmd.Env = append(os.Environ(), readEnv+"="+r.disk)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("read disk: %v: %s", err, out)
	}
	r.pid = cmd.Process.Pid
}

// TestCgroup compares the number of reclaimed pages with those that cannot have remained in memory.
func TestCgroup(t *testing.T) {
	if !tooltest.HasTracepoint(t, "mm_vmscan_memcg_reclaim_begin") {
		t.Skip("this kernel has no memory cgroups (CONFIG_MEMCG)")
	}
	r := newReader(t, "corescope-reclaim")
	before := system.Memory("/")["MemFree"]
	res := tooltest.JSON(t, Tool, nil, func() { r.read(t) })
	var pages, ns float64
	for _, row := range res.Events {
		if int(row.Num("pid")) != r.pid {
			continue
		}
		pages += row.Num("reclaimed_pages")
		ns += row.Num("duration_ns")
		if row.Str("kind") != "cgroup" || row.Str("comm") == "" || row.Num("duration_ns") <= 0 {
			t.Fatalf("row %v", row)
		}
		if row.Has("order") != (row.Str("kind") == "system") {
			t.Errorf("row %v, want order only for the kind system", row)
		}
		// Memory changes meanwhile, but not by orders of magnitude.
		if free := row.Num("free_bytes"); free < float64(before)/4 || free > float64(before)*4 {
			t.Fatalf("free memory is %v, MemFree was %d", free, before)
		}
	}
	page := float64(os.Getpagesize())
	if least, most := (size-limit)/page, 1.25*size/page; pages < least || pages > most {
		t.Errorf("%v pages reclaimed, want %v to %v", pages, least, most)
	}
	if ns <= 0 {
		t.Errorf("%v ns", ns)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost: %v", lost, res.Summary)
	}
}

func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	r := newReader(t, "corescope-reclaim-filters")
	for _, c := range []struct {
		args []string
		want bool
	}{{[]string{"--cgroup", r.dir}, true}, {[]string{"-n", "no such task"}, false}, {[]string{"--filter", `kind == "system"`, "--cgroup", r.dir}, false}} {
		res := tooltest.JSON(t, Tool, c.args, func() { r.read(t) })
		if got := len(res.Events) > 0; got != c.want {
			t.Errorf("%q: %d rows", c.args, len(res.Events))
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	r := newReader(t, "corescope-reclaim-text")
	for flags, want := range map[string]string{
		"":         "TIME COMM TID LAT(ms) PAGES KIND",
		"-T -U -e": "TIME(s) UID COMM TID LAT(ms) PAGES FREE(KB) KIND",
	} {
		out := tooltest.Text(t, Tool, append(strings.Fields(flags), "--cgroup", r.dir), func() { r.read(t) })
		header, rows, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(header), " "); got != want || rows == "" {
			t.Errorf("%q: header %q, want %q; rows %.100q", flags, got, want, rows)
		}
	}
}
