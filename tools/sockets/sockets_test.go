package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, map[string]func() error{"mptcp": mptcpRole}) }

func self() []string { return []string{"-p", strconv.Itoa(os.Getpid())} }

// fileOf returns the descriptor of a connection or listener.
func fileOf(t *testing.T, c interface{ File() (*os.File, error) }) (fd int, inode float64) {
	t.Helper()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return int(f.Fd()), float64(st.Ino)
}

func onlyRow(t *testing.T, res *tooltest.Result, what string, keep func(tooltest.Row) bool) tooltest.Row {
	t.Helper()
	rows := res.Where(keep)
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows, want one: %v", what, len(rows), rows)
	}
	return rows[0]
}

func check(t *testing.T, what string, row tooltest.Row, want map[string]any) {
	t.Helper()
	for key, w := range want {
		if row[key] != w {
			t.Errorf("%s: %s is %v, want %v: %v", what, key, row[key], w, row)
		}
	}
}

// pair is a connection whose data is not read.
func pair(t *testing.T, network, address string) (listener net.Listener, client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if network == "tcp6" && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	client, err = net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return listener, client, server
}

// TestTCP checks both ends of a connection, the listener, waiting connections, and queues.
func TestTCP(t *testing.T) {
	tooltest.Root(t)
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		listener, client, server := pair(t, network, address)
		waiting, err := net.Dial(network, listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
		if _, err := client.Write(make([]byte, 777)); err != nil {
			t.Fatal(err)
		}
		_, listens := fileOf(t, listener.(*net.TCPListener))
		serverFD, serves := fileOf(t, server.(*net.TCPConn))
		res := tooltest.JSON(t, Tool, []string{"-t"}, nil)
		byInode := func(inode float64) func(tooltest.Row) bool {
			return func(r tooltest.Row) bool { return r.Num("inode") == inode }
		}
		port := float64(listener.Addr().(*net.TCPAddr).Port)
		host := listener.Addr().(*net.TCPAddr).IP.String()
		row := onlyRow(t, res, "listener", byInode(listens))
		check(t, "listener", row, map[string]any{
			"protocol": "tcp", "kind": "stream", "state": "LISTEN", "laddr": host, "lport": port, "rport": 0.0, "backlog": 1.0,
			"pid": float64(os.Getpid()), "holders": 2.0, "sock_uid": 0.0, "rx_queue_bytes": nil,
		})
		row = onlyRow(t, res, "server", byInode(serves))
		check(t, "server", row, map[string]any{
			"state": "ESTABLISHED", "laddr": host, "raddr": host, "lport": port, "rport": portOf(client.LocalAddr()),
			"rx_queue_bytes": 777.0, "tx_queue_bytes": 0.0, "holders": 2.0, "backlog": nil,
		})
		if fd := int(row.Num("fd")); fd > serverFD {
			t.Errorf("descriptor of the owner is %d, want the first one, before %d", fd, serverFD)
		}
		row = onlyRow(t, res, "not accepted", func(r tooltest.Row) bool {
			return r.Num("rport") == portOf(waiting.LocalAddr()) && r.Num("lport") == port
		})
		check(t, "not accepted", row, map[string]any{"pid": 0.0, "inode": 0.0, "holders": 0.0, "state": "ESTABLISHED", "fd": nil})
	}
}

func portOf(a net.Addr) float64 {
	_, port, _ := net.SplitHostPort(a.String())
	n, _ := strconv.ParseFloat(port, 64)
	return n
}

// TestTimeWait checks that a connection in TIME_WAIT has addresses and no owner.
func TestTimeWait(t *testing.T) {
	tooltest.Root(t)
	_, client, server := pair(t, "tcp4", "127.0.0.1:0")
	local, remote := portOf(client.LocalAddr()), portOf(client.RemoteAddr())
	client.Close()
	_, _ = server.Read(make([]byte, 1))
	server.Close()
	res := tooltest.JSON(t, Tool, []string{"--tcp"}, nil)
	row := onlyRow(t, res, "the rest", func(r tooltest.Row) bool { return r.Num("lport") == local && r.Num("rport") == remote })
	check(t, "the rest", row, map[string]any{"state": "TIME_WAIT", "pid": 0.0, "laddr": "127.0.0.1", "sock_uid": float64(1<<32 - 1), "rx_queue_bytes": nil})
}

func TestUDP(t *testing.T) {
	tooltest.Root(t)
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out, err := net.Dial("udp4", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, append(self(), "--udp"), nil)
	row := onlyRow(t, res, "receiver", func(r tooltest.Row) bool { return r.Num("lport") == portOf(conn.LocalAddr()) })
	check(t, "receiver", row, map[string]any{"protocol": "udp", "kind": "dgram", "state": "CLOSE", "laddr": "127.0.0.1", "rport": 0.0})
	if n := row.Num("rx_queue_bytes"); n < 100 || n > 8192 {
		t.Errorf("%v bytes are queued in %v, want those of a datagram of 100", n, row)
	}
	row = onlyRow(t, res, "sender", func(r tooltest.Row) bool { return r.Num("lport") == portOf(out.LocalAddr()) })
	check(t, "sender", row, map[string]any{"state": "ESTABLISHED", "rport": portOf(conn.LocalAddr()), "rx_queue_bytes": 0.0})
	res = tooltest.JSON(t, Tool, append(self(), "-ul"), nil)
	onlyRow(t, res, "listening", func(tooltest.Row) bool { return true })
}

func TestUnix(t *testing.T) {
	tooltest.Root(t)
	path := t.TempDir() + "/\x1bsocket"
	listener, client, server := pair(t, "unix", path)
	for range 2 { // waiting for accept
		waiting, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
	}
	_, listens := fileOf(t, listener.(*net.UnixListener))
	_, asks := fileOf(t, client.(*net.UnixConn))
	_, answers := fileOf(t, server.(*net.UnixConn))
	abstract, err := net.Listen("unix", "@of corescope "+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	res := tooltest.JSON(t, Tool, append(self(), "-x"), nil)
	for inode, want := range map[float64]map[string]any{
		listens: {"state": "LISTEN", "path": path, "peer_inode": nil, "backlog": 2.0, "protocol": "unix", "kind": "stream", "laddr": nil, "lport": nil},
		asks:    {"state": "ESTABLISHED", "path": nil, "peer_inode": answers},
		answers: {"state": "ESTABLISHED", "path": path, "peer_inode": asks},
	} {
		check(t, "unix", onlyRow(t, res, "unix", func(r tooltest.Row) bool { return r.Num("inode") == inode }), want)
	}
	onlyRow(t, res, "abstract", func(r tooltest.Row) bool { return r.Str("path") == abstract.Addr().String() })
}

// listed returns the sockets in /proc/net by inode: state, ports and queues for TCP, "" for unix.
func listed(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		b, err := os.ReadFile("/proc/net/" + name)
		if err != nil {
			continue
		}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			f := strings.Fields(line)
			if i == 0 {
				continue
			}
			if name == "unix" {
				all[f[6]] = "unix"
			} else if f[9] != "0" {
				all[f[9]] = strings.TrimSuffix(name, "6") + " " + f[1][strings.IndexByte(f[1], ':'):] + " " + f[3]
			}
		}
	}
	return all
}

// TestEverySocket checks that each socket that is in /proc/net before and after is listed once,
// with its state.
func TestEverySocket(t *testing.T) {
	tooltest.Root(t)
	pair(t, "tcp4", "127.0.0.1:0")
	pair(t, "unix", t.TempDir()+"/socket")
	before := listed(t)
	res := tooltest.JSON(t, Tool, nil, nil)
	after := listed(t)
	rows := map[string][]tooltest.Row{}
	for _, row := range res.Events {
		inode := strconv.Itoa(int(row.Num("inode")))
		rows[inode] = append(rows[inode], row)
	}
	lacks := strings.Contains(res.Stderr, "others_unix")
	stayed := 0
	for inode, was := range before {
		if after[inode] != was || lacks && was == "unix" {
			continue
		}
		stayed++
		if len(rows[inode]) != 1 {
			t.Errorf("socket %s (%s) is listed %d times: %v", inode, was, len(rows[inode]), rows[inode])
			continue
		}
		row := rows[inode][0]
		state := map[string]string{"ESTABLISHED": "01", "CLOSE": "07", "LISTEN": "0A", "CLOSE_WAIT": "08"}[row.Str("state")]
		if got := fmt.Sprintf("%s :%04X %s", row.Str("protocol"), int(row.Num("lport")), state); was != "unix" && got != was {
			t.Errorf("socket %s is %q, want %q: %v", inode, got, was, row)
		}
	}
	if stayed < 3 || res.Summary.Num("lost") != 0 {
		t.Errorf("%d sockets existed throughout, summary %v", stayed, res.Summary)
	}
}

// TestNamespaceAndHolders checks a socket in another network namespace, and one with two holders.
func TestNamespaceAndHolders(t *testing.T) {
	tooltest.Root(t)
	type made struct {
		fd    int
		netns float64
		err   error
	}
	result := make(chan made)
	go func() { // its thread exits with the goroutine
		runtime.LockOSThread()
		var m made
		if m.err = unix.Unshare(unix.CLONE_NEWNET); m.err == nil {
			m.fd, m.err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			_ = unix.Listen(m.fd, 5)
		}
		var st unix.Stat_t
		_ = unix.Stat(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), &st)
		m.netns = float64(st.Ino)
		result <- m
		<-result
	}()
	m := <-result
	defer close(result)
	if m.err != nil {
		t.Fatalf("make a network namespace: %v", m.err)
	}
	defer unix.Close(m.fd)
	cmd := exec.Command("cat")
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(mustDup(t, m.fd)), "socket")}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }()
	res := tooltest.JSON(t, Tool, []string{"-tl"}, nil)
	row := onlyRow(t, res, "of another namespace", func(r tooltest.Row) bool { return r.Num("netns") == m.netns })
	check(t, "of another namespace", row, map[string]any{"state": "LISTEN", "holders": 3.0, "backlog_max": 5.0})
	res = tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(cmd.Process.Pid)}, nil)
	row = onlyRow(t, res, "of the child", func(tooltest.Row) bool { return true })
	check(t, "of the child", row, map[string]any{"pid": float64(cmd.Process.Pid), "fd": 3.0, "holders": 3.0})
}

// TestMPTCPElsewhere lists an MPTCP listener in another network namespace, and both ends of a
// connection to it.
func TestMPTCPElsewhere(t *testing.T) {
	tooltest.Root(t)
	cmd := tcptest.InRole("mptcp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
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
	var port float64
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	if port == 0 {
		t.Skip("MPTCP is unavailable: the child's connection is TCP")
	}
	res := tooltest.JSON(t, Tool, []string{"-t", "-p", strconv.Itoa(cmd.Process.Pid)}, nil)
	var states []string
	for _, r := range res.Events {
		if r.Num("lport") == port || r.Num("rport") == port {
			states = append(states, r.Str("state"))
		}
	}
	slices.Sort(states)
	if want := []string{"ESTABLISHED", "ESTABLISHED", "LISTEN"}; !slices.Equal(states, want) {
		t.Errorf("states are %q, want %q: %v", states, want, res.Events)
	}
}

// mptcpRole listens and connects with MPTCP, prints the port, and waits for the end of standard
// input.
func mptcpRole() error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(true)
	client, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return err
	}
	defer server.Close()
	port := tcptest.Port(l.Addr())
	if on, err := server.(*net.TCPConn).MultipathTCP(); !on || err != nil {
		port = 0
	}
	fmt.Println(port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func mustDup(t *testing.T, fd int) int {
	t.Helper()
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return dup
}

func TestText(t *testing.T) {
	listener, _, _ := pair(t, "unix", t.TempDir()+"/\x1b")
	out := tooltest.Text(t, Tool, append(self(), "-xl", "--columns", "pid,path"), nil)
	want := fmt.Sprintf("%d %s", os.Getpid(), strings.ReplaceAll(listener.Addr().String(), "\x1b", `\x1b`))
	if lines := strings.Split(out, "\n"); len(lines) != 3 || strings.Join(strings.Fields(lines[1]), " ") != want {
		t.Errorf("got %q, want %q", out, want)
	}
	out = tooltest.Text(t, Tool, append(self(), "-xl", "--columns", "pid,protocol", "--output", "csv"), nil)
	if want := fmt.Sprintf("pid,protocol\n%d,unix\n", os.Getpid()); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
