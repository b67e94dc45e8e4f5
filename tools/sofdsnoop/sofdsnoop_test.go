package sofdsnoop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func me() string { return strconv.Itoa(os.Getpid()) }

func pair(t testing.TB) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func inode(t testing.TB, fd int) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Ino)
}

// pass sends descriptors and receives them. It returns the new ones, which are open until the test
// ends.
func pass(t testing.TB, from, to int, fds ...int) []int {
	t.Helper()
	if err := unix.Sendmsg(from, []byte("x"), unix.UnixRights(fds...), nil, 0); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, unix.CmsgSpace(4*253))
	_, n, _, _, err := unix.Recvmsg(to, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("control messages %v: %v", messages, err)
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range got {
			unix.Close(fd)
		}
	})
	return got
}

// TestPass passes a file, a pipe and a socket, after a message without descriptors.
func TestPass(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "passed"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	a, b := pair(t)
	sent := []int{int(file.Fd()), pipe[0], a}
	paths := []string{file.Name(), fmt.Sprintf("pipe:[%d]", inode(t, pipe[0])), fmt.Sprintf("socket:[%d]", inode(t, a))}
	var got []int
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		if err := unix.Sendmsg(a, []byte("x"), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
		unix.Recvmsg(b, make([]byte, 1), make([]byte, 64), 0)
		got = pass(t, a, b, sent...)
		unix.Sendmsg(-1, []byte("x"), unix.UnixRights(sent...), nil, 0)
	})
	if len(res.Events) != 6 {
		t.Fatalf("%d rows, want 6: %v", len(res.Events), res.Events)
	}
	for i, r := range res.Events {
		n := i % 3
		want := map[string]any{"action": "SEND", "fd": sent[n], "socket_fd": a, "socket_inode": inode(t, a)}
		if i >= 3 {
			want = map[string]any{"action": "RECV", "fd": got[n], "socket_fd": b, "socket_inode": inode(t, b)}
		}
		want["path"], want["inode"], want["pid"], want["comm"] = paths[n], inode(t, sent[n]), os.Getpid(), tcptest.Comm()
		tcptest.Fields(t, fmt.Sprint("row ", i), r, want)
	}
}

// TestControlMessages passes a descriptor with another control message before it.
func TestControlMessages(t *testing.T) {
	a, b := pair(t)
	if err := unix.SetsockoptInt(b, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		control := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
		if err := unix.Sendmsg(a, []byte("x"), append(control, unix.UnixRights(a, b)...), nil, 0); err != nil {
			t.Fatal(err)
		}
		oob := make([]byte, 256)
		_, n, _, _, err := unix.Recvmsg(b, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(messages) != 2 {
			t.Fatalf("control messages %v: %v", messages, err)
		}
		got, _ := unix.ParseUnixRights(&messages[1])
		for _, fd := range got {
			unix.Close(fd)
		}
	})
	var actions []string
	for _, r := range res.Events {
		actions = append(actions, r.Str("action"))
	}
	if strings.Join(actions, " ") != "SEND SEND RECV RECV" {
		t.Errorf("rows %v", res.Events)
	}
}

// TestMany passes as many descriptors as a message can have.
func TestMany(t *testing.T) {
	a, b := pair(t)
	fds := make([]int, 253)
	for i := range fds {
		fds[i] = a
	}
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() { pass(t, a, b, fds...) })
	tooltest.CheckTotal(t, res.Summary, len(res.Events), 2*len(fds))
	if tooltest.Lost(res.Summary) != 0 {
		t.Errorf("lost: %v", res.Lost)
	}
}

// TestFilter selects tasks by their name.
func TestFilter(t *testing.T) {
	a, b := pair(t)
	for name, want := range map[string]int{tcptest.Comm()[2:5]: 2, "nosuch": 0} {
		res := tooltest.JSON(t, Tool, []string{"-p", me(), "-n", name}, func() { pass(t, a, b, a) })
		if len(res.Events) != want {
			t.Errorf("-n %s: %d rows, want %d", name, len(res.Events), want)
		}
	}
}

func TestText(t *testing.T) {
	a, b := pair(t)
	out := tooltest.Text(t, Tool, []string{"-T", "-p", me()}, func() { pass(t, a, b, a) })
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[0]), " ") != "TIME(s) ACTION TID COMM SOCKET FD NAME" {
		t.Fatalf("%q", out)
	}
	socket := fmt.Sprintf("socket:[%d]", inode(t, a))
	if f := strings.Fields(lines[1]); f[1] != "SEND" || strings.Join(f[3:], " ") != fmt.Sprintf("%s %d:%s %d %s", tcptest.Comm(), a, socket, a, socket) {
		t.Errorf("%q", lines[1])
	}
}
