package filetop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() string { return strconv.Itoa(os.Getpid()) }

// file creates a file of the given size, and returns it and its inode number.
func file(t *testing.T, dir, name string, size int) (*os.File, float64) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return f, float64(st.Ino)
}

// total sums the rows of a file, one per thread and interval.
func total(rows []tooltest.Row, inode float64) (reads, writes, readBytes, writeBytes float64) {
	for _, r := range rows {
		if r.Num("inode") == inode {
			reads += r.Num("reads")
			writes += r.Num("writes")
			readBytes += r.Num("read_bytes")
			writeBytes += r.Num("write_bytes")
		}
	}
	return reads, writes, readBytes, writeBytes
}

func check(t *testing.T, rows []tooltest.Row, inode float64, want [4]float64) {
	t.Helper()
	var got [4]float64
	if got[0], got[1], got[2], got[3] = total(rows, inode); got != want {
		t.Errorf("reads, writes and their bytes %v, want %v", got, want)
	}
}

func must(t *testing.T) func(int, error) {
	return func(_ int, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

// TestCalls checks that every call counts, with the bytes transferred, not those requested.
func TestCalls(t *testing.T) {
	f, inode := file(t, t.TempDir(), "counted", 1000)
	fd := int(f.Fd())
	res := tooltest.JSON(t, Tool, []string{"--pid", self(), "50ms"}, func() {
		ok, buf := must(t), make([]byte, 4096)
		ok(unix.Read(fd, buf))                                           // 1000
		ok(unix.Read(fd, buf))                                           // 0, at end of file
		ok(unix.Pread(fd, buf[:10], 0))                                  // 10
		ok(unix.Readv(fd, [][]byte{buf}))                                // 0
		ok(unix.Preadv(fd, [][]byte{buf[:3], buf[:4]}, 0))               // 7
		ok(unix.Preadv2(fd, [][]byte{buf[:5]}, 0, 0))                    // 5
		ok(unix.Pwrite(fd, buf[:100], 0))                                // 100
		ok(unix.Write(fd, buf[:1]))                                      // 1
		ok(unix.Writev(fd, [][]byte{buf[:2], buf[:3]}))                  // 5
		ok(unix.Pwritev(fd, [][]byte{buf[:20]}, 0))                      // 20
		ok(unix.Pwritev2(fd, [][]byte{buf[:4]}, 0, 0))                   // 4
		unix.Read(-1, buf)                                               // fails
		unix.Syscall(unix.SYS_READ, uintptr(fd), ^uintptr(0)-8192, 4096) // fails: EFAULT
	})
	check(t, res.Rows, inode, [4]float64{6, 5, 1022, 130})
	for _, r := range res.Rows {
		if r.Num("inode") == inode && (r.Str("file") != "counted" || r.Str("type_of_file") != "R" || r.Num("pid") != float64(os.Getpid())) {
			t.Errorf("row %v", r)
		}
	}
}

func TestCopies(t *testing.T) {
	dir := t.TempDir()
	from, fromInode := file(t, dir, "from", 5000)
	to, toInode := file(t, dir, "to", 0)
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		ok := must(t)
		ok(unix.Sendfile(int(to.Fd()), int(from.Fd()), nil, 3000))
		ok(unix.CopyFileRange(int(from.Fd()), nil, int(to.Fd()), nil, 1500, 0))
	})
	check(t, res.Rows, fromInode, [4]float64{2, 0, 4500, 0})
	check(t, res.Rows, toInode, [4]float64{0, 2, 0, 4500})
}

func TestKinds(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	load := func() {
		buf := make([]byte, 33)
		for _, fd := range [][2]int{{fds[1], fds[0]}, {pair[0], pair[1]}} {
			must(t)(unix.Write(fd[0], buf))
			must(t)(unix.Read(fd[1], buf))
		}
	}
	inodeOf := func(fd int) float64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return float64(st.Ino)
	}
	res := tooltest.JSON(t, Tool, []string{"--pid", self(), "--all"}, load)
	check(t, res.Rows, inodeOf(fds[0]), [4]float64{1, 1, 33, 33})
	check(t, res.Rows, inodeOf(pair[0]), [4]float64{0, 1, 0, 33})
	for _, r := range res.Rows {
		if want := map[float64]string{inodeOf(fds[0]): "O", inodeOf(pair[0]): "S"}[r.Num("inode")]; want != "" && r.Str("type_of_file") != want {
			t.Errorf("row %v, want type %s", r, want)
		}
	}
	res = tooltest.JSON(t, Tool, []string{"--pid", self()}, load)
	check(t, res.Rows, inodeOf(fds[0]), [4]float64{})
}

func TestDirectoryAndDirection(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "in", "deep")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	inside, in := file(t, deep, "inside", 100)
	outside, out := file(t, top, "outside", 100)
	load := func() {
		for _, f := range []*os.File{inside, outside} {
			must(t)(unix.Pread(int(f.Fd()), make([]byte, 100), 0))
			must(t)(unix.Pwrite(int(f.Fd()), make([]byte, 7), 0))
		}
	}
	for _, tt := range []struct {
		args []string
		want [2][4]float64
	}{
		{nil, [2][4]float64{{1, 1, 100, 7}, {1, 1, 100, 7}}},
		{[]string{"-d", filepath.Join(top, "in")}, [2][4]float64{{1, 1, 100, 7}, {}}},
		{[]string{"-d", top, "--read-only"}, [2][4]float64{{1, 0, 100, 0}, {1, 0, 100, 0}}},
		{[]string{"--write-only"}, [2][4]float64{{0, 1, 0, 7}, {0, 1, 0, 7}}},
	} {
		res := tooltest.JSON(t, Tool, append(tt.args, "--pid", self()), load)
		check(t, res.Rows, in, tt.want[0])
		check(t, res.Rows, out, tt.want[1])
	}
}

// TestCompat checks 32-bit tasks, whose system calls have other numbers.
func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, []byte("hello"), func(data uint32) []byte {
		return append(append(tooltest.Call386(4, 1, data, 5), tooltest.Call386(4, 1, data, 2)...), tooltest.Exit386()...)
	})
	f, inode := file(t, t.TempDir(), "out", 0)
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		cmd := exec.Command(prog)
		cmd.Stdout = f
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	check(t, res.Rows, inode, [4]float64{0, 2, 0, 7})
}

func TestCSV(t *testing.T) {
	f, _ := file(t, t.TempDir(), "a,\"b\"", 0)
	out := tooltest.Text(t, Tool, []string{"--pid", self(), "--output", "csv", "--columns", "file,writes,write_bytes", "-s", "wbytes", "-r", "1"}, func() {
		must(t)(unix.Write(int(f.Fd()), make([]byte, 123456)))
	})
	if lines := strings.Split(out, "\n"); len(lines) < 2 || lines[0] != "file,writes,write_bytes" || lines[1] != `"a,""b""",1,123456` {
		t.Errorf("%q", out)
	}
}
