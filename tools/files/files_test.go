package files

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

func self() []string { return []string{"-p", strconv.Itoa(os.Getpid())} }

// held returns the descriptors of this process with their targets in /proc.
func held(t *testing.T) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			all[fd] = target
		}
	}
	return all
}

func byFD(t *testing.T, rows []tooltest.Row) map[int]tooltest.Row {
	t.Helper()
	all := map[int]tooltest.Row{}
	for _, row := range rows {
		if row.Str("use") != "fd" {
			continue
		}
		fd := int(row.Num("fd"))
		if all[fd] != nil {
			t.Errorf("descriptor %d is listed twice", fd)
		}
		all[fd] = row
	}
	return all
}

// open opens descriptors of every type and returns them.
func open(t *testing.T, dir string) []int {
	t.Helper()
	var fds []int
	add := func(fd int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		t.Cleanup(func() { unix.Close(fd) })
	}
	for i, flags := range []int{unix.O_RDWR | unix.O_CREAT, unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_CLOEXEC, unix.O_CREAT | unix.O_SYNC} {
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprint("file \x01", i)), flags, 0o600)
		add(fd, err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	add(fd, err)
	fd, err = unix.Open("/dev/null", unix.O_RDWR, 0)
	add(fd, err)
	fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	add(fd, err)
	fd, err = unix.Eventfd(0, 0)
	add(fd, err)
	fd, err = unix.MemfdCreate("a memory", 0)
	add(fd, err)
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	add(fd, err)
	fd, err = unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)
	add(fd, err)
	fd, err = unix.Open("/proc/self/status", unix.O_RDONLY, 0)
	add(fd, err)
	var pipe [2]int
	err = unix.Pipe2(pipe[:], 0)
	add(pipe[0], err)
	add(pipe[1], err)
	return fds
}

// TestEveryDescriptor compares each descriptor with /proc: path, flags, position, inode and type.
func TestEveryDescriptor(t *testing.T) {
	tooltest.Root(t)
	dir := t.TempDir()
	mine := open(t, dir)
	if _, err := unix.Write(mine[0], make([]byte, 1234)); err != nil {
		t.Fatal(err)
	}
	before := held(t)
	res := tooltest.JSON(t, Tool, self(), nil)
	after := held(t)
	rows := byFD(t, res.Events)
	for fd, target := range before {
		if after[fd] != target {
			continue
		}
		if rows[fd] == nil {
			t.Errorf("descriptor %d (%s) is not listed", fd, target)
		} else if slices.Contains(mine, fd) {
			checkDescriptor(t, rows[fd], fd, target)
		}
	}
	if got := rows[mine[0]]; got.Num("position") != 1234 || got.Num("size_bytes") != 1234 {
		t.Errorf("position after writing 1,234 bytes is %v", got)
	}
	if len(rows) < len(mine) || res.Summary.Num("lost") != 0 {
		t.Errorf("%d rows, summary %v", len(rows), res.Summary)
	}
}

func checkDescriptor(t *testing.T, row tooltest.Row, fd int, target string) {
	t.Helper()
	path, deleted := strings.CutSuffix(target, " (deleted)")
	if got := row.Bytes(t, "path"); got != path || row["deleted"] != deleted {
		t.Errorf("descriptor %d is %q, deleted %v; want %q", fd, got, row["deleted"], target)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	types := map[uint32]string{
		unix.S_IFREG: "reg", unix.S_IFDIR: "dir", unix.S_IFCHR: "chr", unix.S_IFIFO: "fifo", unix.S_IFSOCK: "sock", 0: "anon",
	}
	if row.Num("inode") != float64(st.Ino) || row.Str("filetype") != types[st.Mode&unix.S_IFMT] || row.Num("links") != float64(st.Nlink) {
		t.Errorf("descriptor %d (%s) is %v, want inode %d, type %s, links %d", fd, target, row, st.Ino, types[st.Mode&unix.S_IFMT], st.Nlink)
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	var pos, flags uint64
	if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o\n", &pos, &flags); err != nil {
		t.Fatal(err)
	}
	want := openFlags{value.OpenFlags(flags), true}
	if text, _ := json.Marshal(row["flags"]); string(text) != string(want.AppendJSON(nil)) || row.Num("position") != float64(pos) {
		t.Errorf("descriptor %d (%s) has flags %s at %v, want %s at %d", fd, target, text, row["position"], want.AppendJSON(nil), pos)
	}
}

func TestPlaces(t *testing.T) {
	tooltest.Root(t)
	res := tooltest.JSON(t, Tool, self(), nil)
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cwd": cwd, "root": "/", "exe": exe}
	for _, row := range res.Where(func(r tooltest.Row) bool { return r.Str("use") != "fd" }) {
		if want[row.Str("use")] != row.Str("path") || row.Has("fd") || row.Has("flags") {
			t.Errorf("row %v, want one of %v", row, want)
		}
		delete(want, row.Str("use"))
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// TestWhoHolds finds a file under any of its names, by its file system, and after its removal.
func TestWhoHolds(t *testing.T) {
	tooltest.Root(t)
	dir := t.TempDir()
	path := dir + "/file"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Link(path, dir+"/other"); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"--file", dir + "/other"}, nil)
	if len(res.Events) != 1 || int(res.Events[0].Num("pid")) != os.Getpid() || res.Events[0].Str("path") != path ||
		int(res.Events[0].Num("fd")) != int(f.Fd()) {
		t.Errorf("holders are %v, want this process", res.Events)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	res = tooltest.JSON(t, Tool, []string{"--file", dir + "/other"}, nil)
	if len(res.Events) != 1 || res.Events[0]["deleted"] != true || res.Events[0].Num("links") != 1 {
		t.Errorf("holders of the removed file: %v", res.Events)
	}
	res = tooltest.JSON(t, Tool, append(self(), "--filesystem", "/proc", "-o"), nil)
	for _, row := range res.Events {
		if row.Str("fs") != "proc" {
			t.Errorf("not on /proc: %v", row)
		}
	}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	onlyOpen := tooltest.JSON(t, Tool, append(self(), "--filesystem", "/proc", "-o"), nil)
	if len(onlyOpen.Events) != len(res.Events)+1 {
		t.Errorf("%d rows, want one more than %d", len(onlyOpen.Events), len(res.Events))
	}
}

// TestThreadsOwnTable checks that a thread with its own descriptor table is listed with it, and no
// other thread separately.
func TestThreadsOwnTable(t *testing.T) {
	tooltest.Root(t)
	ready, done := make(chan [2]int), make(chan bool)
	defer close(done)
	go onThread(func() {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			ready <- [2]int{-1, -1}
			return
		}
		fd, _ := unix.Eventfd(0, 0)
		ready <- [2]int{unix.Gettid(), fd}
		<-done
	})
	own := <-ready
	if own[0] < 0 {
		t.Skip("unshare(CLONE_FILES) is not permitted")
	}
	res := tooltest.JSON(t, Tool, append(self(), "-o"), nil)
	mine := res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == own[0] && int(r.Num("fd")) == own[1] })
	if len(mine) != 1 || mine[0].Str("path") != "anon_inode:[eventfd]" {
		t.Errorf("rows of the thread are %v", mine)
	}
	byFD(t, res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == own[0] }))
	byFD(t, res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == os.Getpid() }))
	for _, row := range res.Events {
		if tid := int(row.Num("tid")); tid != own[0] && tid != os.Getpid() {
			t.Errorf("row of a thread with a shared table: %v", row)
		}
	}
	text := tooltest.Text(t, Tool, append(self(), "-o", "--filter", fmt.Sprint("fd == ", own[1], " && path == 'anon_inode:[eventfd]'")), nil)
	want := fmt.Sprintf("%d %d ", os.Getpid(), own[0])
	if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.HasPrefix(strings.Join(strings.Fields(line), " "), want)
	}) {
		t.Errorf("text has no line with process and thread %q:\n%s", want, text)
	}
}

// onThread calls f in a thread that is not the leader and exits afterwards.
func onThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan bool)
	go func() {
		defer close(done)
		onThread(f)
	}()
	<-done
}

// TestFirstThreadEnded checks that a process is listed once after the exit of its thread-group
// leader.
func TestFirstThreadEnded(t *testing.T) {
	tooltest.Root(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asHeadless+"=1")
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
	defer func() { in.Close(); _ = cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-o", "-p", strconv.Itoa(cmd.Process.Pid)}, nil)
	rows := byFD(t, res.Events)
	for fd := range 3 {
		if rows[fd] == nil {
			t.Errorf("descriptor %d is not listed: %v", fd, res.Events)
		}
	}
	res = tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(cmd.Process.Pid), "--filter", `use == "exe"`}, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Events) != 1 || res.Events[0].Str("path") != self {
		t.Errorf("rows of its program are %v, want one with %s", res.Events, self)
	}
}

const asHeadless = "FILES_TEST_HEADLESS"

// TestMain runs headless instead of the tests in the process that exits its thread-group leader.
func TestMain(m *testing.M) {
	if os.Getenv(asHeadless) != "" {
		headless()
	}
	os.Exit(m.Run())
}

// headless exits the thread-group leader and keeps the other threads until end of input.
func headless() {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		_ = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	exiting := make(chan bool)
	go func() {
		runtime.LockOSThread()
		<-exiting
		state := func() string {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", os.Getpid()))
			fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			return fields[0]
		}
		for state() != "Z" {
			runtime.Gosched()
		}
		fmt.Print("x")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	close(exiting)
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

func TestEverybody(t *testing.T) {
	tooltest.Root(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	res := tooltest.JSON(t, Tool, nil, nil)
	seen := map[string]bool{}
	for _, row := range res.Events {
		key := fmt.Sprint(row["tid"], row["use"], row["fd"])
		if seen[key] {
			t.Errorf("listed twice: %v", row)
		}
		seen[key] = true
	}
	if len(res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == os.Getpid() && r.Str("filetype") == "sock" })) == 0 {
		t.Error("the listening socket is not listed")
	}
}

func TestText(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(dir + "/\x1b[1m")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := tooltest.Text(t, Tool, append(self(), "--file", f.Name(), "--columns", "pid,fd,path"), nil)
	want := fmt.Sprintf("PID FD PATH\n%d %d %s/\\x1b[1m\n", os.Getpid(), f.Fd(), dir)
	if got := strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' }), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out = tooltest.Text(t, Tool, append(self(), "--file", f.Name(), "--columns", "pid,fd", "--output", "csv"), nil)
	if want := fmt.Sprintf("pid,fd\n%d,%d\n", os.Getpid(), f.Fd()); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
