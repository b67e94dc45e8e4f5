package syncsnoop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// TestEveryCall compares rows with the calls, their results and the time that they took.
func TestEveryCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "synced")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	fd, page := int(f.Fd()), os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	const none = -2 // no descriptor
	calls := []struct {
		name, error string
		fd          int
		call        func() error
	}{
		{"fsync", "", fd, func() error { return unix.Fsync(fd) }},
		{"fdatasync", "", fd, func() error { return unix.Fdatasync(fd) }},
		{"syncfs", "", fd, func() error { return unix.Syncfs(fd) }},
		{"sync_file_range", "", fd, func() error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }},
		{"msync", "", none, func() error { return unix.Msync(memory, unix.MS_SYNC) }},
		{"fsync", "EBADF", 1 << 20, func() error { return unix.Fsync(1 << 20) }},
		{"fsync", "EBADF", -1, func() error { return unix.Fsync(-1) }},
		{"sync", "", none, func() error { unix.Sync(); return nil }},
	}
	spans := make([]time.Duration, len(calls))
	res := tooltest.JSON(t, Tool, self(), func() {
		for i, c := range calls {
			start := time.Now()
			err := c.call()
			spans[i] = time.Since(start)
			if (err != nil) != (c.error != "") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
	if len(res.Events) != len(calls) {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), len(calls), res.Events)
	}
	for i, c := range calls {
		r := res.Events[i]
		if r.Str("syscall") != c.name || r.Str("error") != c.error || r.Has("fd") != (c.fd != none) || r.Has("fd") && int(r.Num("fd")) != c.fd {
			t.Errorf("%s: %v", c.name, r)
		}
		if ns := r.Num("latency_ns"); ns <= 0 || ns > float64(spans[i]) {
			t.Errorf("%s: latency of %v ns, want at most %d, as measured around the call", c.name, ns, spans[i])
		}
		isFile := c.fd == fd
		if isFile && (r.Str("path") != path || r.Num("inode") != float64(st.Ino)) || r.Has("path") != isFile || r.Has("inode") != isFile || r.Has("device") != isFile || r.Has("fs") != isFile {
			t.Errorf("%s: path %q and inode %v, want %q and %d", c.name, r.Str("path"), r["inode"], path, st.Ino)
		}
	}
}

func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		return slices.Concat(
			tooltest.Call386(118, 77), // fsync
			tooltest.Call386(148, 77), // fdatasync
			tooltest.Call386(144, 1),  // msync
			tooltest.Call386(344, 77), // syncfs
			tooltest.Call386(314, 77), // sync_file_range
			tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, r.Str("syscall")+" "+r.Str("error"))
	}
	if want := []string{"fsync EBADF", "fdatasync EBADF", "msync EINVAL", "syncfs EBADF", "sync_file_range EBADF"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	out := tooltest.Text(t, Tool, self(), func() { unix.Fsync(1 << 20) })
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME(s) COMM CALL PID LAT(ms) PATH" {
		t.Errorf("header %q", got)
	}
	if len(lines) != 3 || !strings.Contains(lines[1], " fsync ") {
		t.Errorf("%q", lines)
	}
}
