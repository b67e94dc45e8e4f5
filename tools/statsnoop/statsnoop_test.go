package statsnoop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// want is a call with the row that it must cause.
type want struct {
	syscall, path string
	dirfd         int
	fd            int // -1 for none
	errno         unix.Errno
}

// callAll makes each of the calls on a file that exists and on one that does not. It returns the
// results of the kernel.
func callAll(t *testing.T, dir string) []want {
	t.Helper()
	var out []want
	buf := make([]byte, 4096)
	at, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	pointer := func(s string) uintptr {
		b, err := unix.BytePtrFromString(s)
		if err != nil {
			t.Fatal(err)
		}
		return uintptr(unsafe.Pointer(b))
	}
	result, names := uintptr(unsafe.Pointer(&buf[0])), value.NewSyscalls()
	for name, kind := range calls {
		nr, ok := names.Number(value.ABINative, name)
		if !ok {
			continue
		}
		for _, file := range []string{"there", "missing"} {
			w := want{name, filepath.Join(dir, file), unix.AT_FDCWD, -1, 0}
			switch {
			case kind == bpfStatKindSTAT_FD:
				w.path, w.fd = "", at
				if file == "missing" {
					w.fd = 1 << 20
				}
				_, _, w.errno = unix.Syscall(uintptr(nr), uintptr(w.fd), result, 0)
			case kind == bpfStatKindSTAT_PATH:
				_, _, w.errno = unix.Syscall(uintptr(nr), pointer(w.path), result, 0)
			case name == "statx":
				w.path, w.dirfd = file, at
				_, _, w.errno = unix.Syscall6(uintptr(nr), uintptr(at), pointer(file), 0, unix.STATX_BASIC_STATS, result, 0)
			default:
				w.path, w.dirfd = file, at
				_, _, w.errno = unix.Syscall6(uintptr(nr), uintptr(at), pointer(file), result, 0, 0, 0)
			}
			if (w.errno != 0) != (file == "missing") {
				t.Errorf("%s of the file that is %s: %v", name, file, w.errno)
			}
			out = append(out, w)
		}
	}
	return out
}

func isRow(r tooltest.Row, w *want) bool {
	fd := -1
	if r.Has("fd") {
		fd = int(r.Num("fd"))
	}
	return r.Str("syscall") == w.syscall && r.Str("path") == w.path && int(r.Num("dirfd")) == w.dirfd && fd == w.fd &&
		int(r.Num("ret")) == -int(w.errno) && int(r.Num("errno")) == int(w.errno)
}

func TestEveryCall(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all []want
	res := tooltest.JSON(t, Tool, self(), func() { all = callAll(t, dir) })
	for _, w := range all {
		rows := res.Where(func(r tooltest.Row) bool { return isRow(r, &w) })
		// The process itself can make a call with the same descriptor and result.
		if len(rows) != 1 && (w.fd < 0 || len(rows) == 0) {
			t.Errorf("%+v: %d rows, want 1", w, len(rows))
		}
	}
}

func TestCompat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "by-32-bit")
	prog := tooltest.I386(t, append([]byte(path), make([]byte, 257)...), func(data uint32) []byte {
		buf := data + uint32(len(path)) + 1
		var code []byte
		for _, nr := range []uint32{18, 106, 107, 195, 196, 99} { // oldstat, stat, lstat, stat64, lstat64, statfs
			code = append(code, tooltest.Call386(nr, data, buf)...)
		}
		code = append(code, tooltest.Call386(300, 0xffffff9c, data, buf)...) // fstatat64
		code = append(code, tooltest.Call386(197, 77, buf)...)               // fstat64
		return append(code, tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, r.Str("syscall")+" "+r.Str("error")+" "+strings.TrimPrefix(r.Str("path"), filepath.Dir(path)))
	}
	missing := " ENOENT /by-32-bit"
	want := []string{
		"oldstat" + missing, "stat" + missing, "lstat" + missing, "stat64" + missing, "lstat64" + missing, "statfs" + missing,
		"fstatat64" + missing, "fstat64 EBADF ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// TestFullPath checks relative paths, paths of descriptors and descriptors without a path.
func TestFullPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var fds [2]int
	var st unix.Stat_t
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	at, fd := open(dir), open(file)
	res := tooltest.JSON(t, Tool, append(self(), "-F"), func() {
		unix.Fstatat(at, "there", &st, 0)
		unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH)
		unix.Fstatat(at, "", &st, 0) // fails: without AT_EMPTY_PATH it names nothing
		unix.Fstat(fd, &st)
		unix.Fstat(fds[0], &st)
	})
	count := func(keep func(r tooltest.Row) bool) int { return len(res.Where(keep)) }
	if n := count(func(r tooltest.Row) bool { return r.Str("path") == file && r.Str("task_path") == file }); n != 3 {
		t.Errorf("%d rows with the path of the file, want 3", n)
	}
	if n := count(func(r tooltest.Row) bool {
		return int(r.Num("dirfd")) == at && r.Str("error") == "ENOENT" && r.Str("path") == ""
	}); n != 1 {
		t.Errorf("%d rows with an empty path, want 1", n)
	}
	if n := count(func(r tooltest.Row) bool { return r.Has("fd") && int(r.Num("fd")) == fds[0] && !r.Has("path") }); n == 0 {
		t.Error("no row of the pipe without a path")
	}
}

func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"-x"}, []string{"missing"}},
		{[]string{"--comm", "statsnoop*"}, []string{"", "missing"}},
		{[]string{"--comm", "other"}, nil},
		{[]string{"--filter", `error == "ENOENT" and syscall == "newfstatat"`}, []string{"missing"}},
	} {
		res := tooltest.JSON(t, Tool, append(self(), tt.args...), func() {
			var st unix.Stat_t
			unix.Fstatat(unix.AT_FDCWD, dir, &st, 0)
			unix.Fstatat(unix.AT_FDCWD, dir+"/missing", &st, 0)
		})
		var got []string
		for _, r := range res.Where(func(r tooltest.Row) bool { return strings.HasPrefix(r.Str("path"), dir) }) {
			got = append(got, strings.TrimPrefix(strings.TrimPrefix(r.Str("path"), dir), "/"))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: paths %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	path := filepath.Join(t.TempDir(), "missing")
	out := tooltest.Text(t, Tool, append(self(), "-t", "-s", "-x"), func() {
		var st unix.Stat_t
		unix.Fstatat(unix.AT_FDCWD, path, &st, 0)
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME(s) PID COMM RET ERR SYSCALL PATH" {
		t.Errorf("header %q", got)
	}
	if !strings.Contains(out, "-2    2 newfstatat   "+path) {
		t.Errorf("no row of the call: %q", out)
	}
}
