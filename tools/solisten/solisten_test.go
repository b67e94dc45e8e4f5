package solisten

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func me() string { return strconv.Itoa(os.Getpid()) }

// listens creates a socket, binds it unless to is nil, and lets it listen. It returns its port.
func listens(t testing.TB, domain, protocol, backlog int, to unix.Sockaddr) int {
	t.Helper()
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if to != nil {
		if err := unix.Bind(fd, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return tcptest.BoundPort(t, fd)
}

func netns(t testing.TB) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Ino)
}

func somaxconn(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func loopback() *unix.SockaddrInet4 { return &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}} }

// TestListen compares rows with the ports of getsockname: of bound sockets, of one that gets its
// port in this call, and of one with a backlog above the limit.
func TestListen(t *testing.T) {
	limit := somaxconn(t)
	var ports []int
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		ports = []int{
			listens(t, unix.AF_INET, 0, 7, loopback()),
			listens(t, unix.AF_INET6, 0, limit+10, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}),
			listens(t, unix.AF_INET, 0, 3, nil),
		}
	})
	want := []map[string]any{
		{"family": 4, "laddr": "127.0.0.1", "requested_backlog": 7, "backlog_max": min(7, limit)},
		{"family": 6, "laddr": "::1", "requested_backlog": limit + 10, "backlog_max": limit},
		{"family": 4, "laddr": "0.0.0.0", "requested_backlog": 3, "backlog_max": min(3, limit)},
	}
	if len(res.Events) != len(want) {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), len(want), res.Events)
	}
	for i, r := range res.Events {
		want[i]["lport"], want[i]["pid"], want[i]["comm"] = ports[i], os.Getpid(), tcptest.Comm()
		want[i]["ret"], want[i]["protocol"], want[i]["netns"] = 0, "tcp", netns(t)
		tcptest.Fields(t, "listen "+strconv.Itoa(i), r, want[i])
	}
}

// TestMPTCP listens with a socket of MPTCP.
func TestMPTCP(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Skipf("no MPTCP: %v", err)
	}
	unix.Close(fd)
	var port int
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		port = listens(t, unix.AF_INET, unix.IPPROTO_MPTCP, 5, loopback())
	})
	tcptest.Fields(t, "listen", tcptest.One(t, "listen", res.Events), map[string]any{"protocol": "mptcp", "lport": port, "requested_backlog": 5, "backlog_max": min(5, somaxconn(t))})
}

// TestFailed calls listen for a datagram socket, which cannot listen, and for a file, which is not
// shown.
func TestFailed(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Listen(fd, 4); err != unix.EOPNOTSUPP {
			t.Errorf("listen with a datagram socket: %v", err)
		}
		unix.Listen(-1, 4)
	})
	tcptest.Fields(t, "listen", tcptest.One(t, "listen", res.Events), map[string]any{
		"ret": -int(unix.EOPNOTSUPP), "error": "EOPNOTSUPP", "protocol": "udp", "requested_backlog": 4,
	})
}

// TestNetNS selects this network namespace and another one.
func TestNetNS(t *testing.T) {
	for ns, want := range map[int]int{netns(t): 1, 1: 0} {
		res := tooltest.JSON(t, Tool, []string{"-p", me(), "-n", strconv.Itoa(ns)}, func() { listens(t, unix.AF_INET, 0, 1, loopback()) })
		if len(res.Events) != want {
			t.Errorf("namespace %d: %v, want %d rows", ns, res.Events, want)
		}
	}
}

// TestCompat listens in a 32-bit program.
func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		return append(tooltest.Call386(363, 3, 9), tooltest.Exit386()...)
	})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	child := exec.Command(prog)
	child.ExtraFiles = []*os.File{file}
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() { _ = child.Run() })
	rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == child.Process.Pid })
	tcptest.Fields(t, "listen", tcptest.One(t, "listen", rows), map[string]any{"requested_backlog": 9, "lport": tcptest.BoundPort(t, fd)})
}

// TestUring listens with io_uring.
func TestUring(t *testing.T) {
	tooltest.AnyAttachType(t)
	const opListen = 57
	u := tooltest.NewUring(t)
	do := func(kind int) (port int, ret int32) {
		fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		ret = u.Do(tooltest.UringSQE{Opcode: opListen, FD: int32(fd), Len: 6})
		return tcptest.BoundPort(t, fd), ret
	}
	if _, ret := do(unix.SOCK_STREAM); ret == -int32(unix.EINVAL) {
		t.Skip("io_uring of this kernel has no listen (before 6.11)")
	}
	var port int
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() { port, _ = do(unix.SOCK_STREAM) })
	tcptest.Fields(t, "listen", tcptest.One(t, "listen", res.Events), map[string]any{
		"ret": 0, "lport": port, "requested_backlog": 6, "comm": tcptest.Comm(), "pid": os.Getpid(),
	})
}

func TestText(t *testing.T) {
	var port int
	out := tooltest.Text(t, Tool, []string{"-T", "--show-netns", "-p", me()}, func() { port = listens(t, unix.AF_INET, 0, 11, loopback()) })
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "TIME PID COMM NETNS RET BACKLOG PROTO PORT ADDR" {
		t.Fatalf("%q", out)
	}
	f := strings.Fields(lines[1])
	want := strings.Join([]string{me(), tcptest.Comm(), strconv.Itoa(netns(t)), "0 11 TCPv4", strconv.Itoa(port), "127.0.0.1"}, " ")
	if strings.Join(f[1:], " ") != want {
		t.Errorf("%q, want %q", lines[1], want)
	}
}
