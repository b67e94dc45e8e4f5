package opensnoop

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

func open(t *testing.T, path string, flags int, mode uint32) {
	t.Helper()
	fd, err := unix.Open(path, flags, mode)
	if err == nil {
		unix.Close(fd)
	}
}

func TestOpenCreatesAndFails(t *testing.T) {
	dir := t.TempDir()
	made, missing := filepath.Join(dir, "made"), filepath.Join(dir, "missing")
	res := tooltest.JSON(t, Tool, self(), func() {
		open(t, made, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o640)
		open(t, missing, unix.O_RDONLY, 0)
	})
	rows := res.Where(func(r tooltest.Row) bool { return filepath.Dir(r.Str("path")) == dir })
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(rows), rows)
	}
	if r := rows[0]; r.Str("path") != made || r.Num("ret") < 3 || r.Num("fd") != r.Num("ret") || r.Str("mode") != "0640" || r.Has("error") {
		t.Errorf("row of the file that was made: %v", r)
	}
	if r := rows[1]; r.Str("path") != missing || r.Num("ret") != -2 || r.Str("error") != "ENOENT" || r.Num("fd") != -1 || r.Has("mode") {
		t.Errorf("row of the file that is missing: %v", r)
	}
}
