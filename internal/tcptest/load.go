// Package tcptest opens TCP connections for live tests, and finds their rows.
package tcptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// Main is a TestMain that runs the role with the name in CORESCOPE_ROLE instead of the tests, if
// that is set. So the test binary can be started as another process of the load.
func Main(m *testing.M, roles map[string]func() error) {
	if err := loopbackUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	role := roles[os.Getenv("CORESCOPE_ROLE")]
	if role == nil {
		os.Exit(m.Run())
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// InRole returns a command that runs this binary in a role.
func InRole(role string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "CORESCOPE_ROLE="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// Comm returns the name of this process, which processes in a role have too.
func Comm() string {
	name := filepath.Base(os.Args[0])
	return name[:min(len(name), 15)]
}

// Output runs the command and returns its standard output.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("run process with %s: %v", cmd.Env[len(cmd.Env)-1], err)
	}
	return string(out)
}

// loopbackUp sets lo up. It is down in a new network namespace and on some minimal machines.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	if ifr.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Pair is a connection with both of its ends.
type Pair struct {
	T              testing.TB
	Client, Server *net.TCPConn
	LPort, RPort   int // local and remote port of the client
}

// Listen listens until the test ends.
func Listen(t testing.TB, addr string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// Port returns the port of an address.
func Port(a net.Addr) int { return a.(*net.TCPAddr).Port }

// Dial connects from local port lport, or from any port if it is 0. The connection is closed when
// the test ends.
func Dial(t testing.TB, addr string, lport int) *net.TCPConn {
	t.Helper()
	d := net.Dialer{KeepAlive: -1}
	if lport > 0 {
		d.LocalAddr = &net.TCPAddr{Port: lport}
	}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// Connect connects to the listener's port at host, from local port lport, or from any port if it is
// 0.
func Connect(t testing.TB, l *net.TCPListener, host string, lport int) *Pair {
	t.Helper()
	c := Dial(t, net.JoinHostPort(host, strconv.Itoa(Port(l.Addr()))), lport)
	s, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &Pair{t, c, s, Port(c.LocalAddr()), Port(c.RemoteAddr())}
}

// Resets makes n connections, one after the other, and resets each. It returns the port of the
// listener.
func Resets(t testing.TB, n int) (port int) {
	t.Helper()
	l := Listen(t, "127.0.0.1:0")
	for range n {
		p := Connect(t, l, "127.0.0.1", 0)
		p.Check(p.Client.SetLinger(0))
		p.Check(p.Client.Close())
		p.Check(p.Server.Close())
	}
	return Port(l.Addr())
}

// BoundPort returns the local port of a socket.
func BoundPort(t testing.TB, fd int) int {
	t.Helper()
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return name.Port
	case *unix.SockaddrInet6:
		return name.Port
	}
	t.Fatalf("socket %d has address %v, want one with a port", fd, name)
	return 0
}

// Check fails the test on an error.
func (p *Pair) Check(err error) {
	p.T.Helper()
	if err != nil {
		p.T.Error(err)
	}
}

// Send sends n bytes from one end to the other, and returns when they are read.
func (p *Pair) Send(from, to net.Conn, n int) {
	p.T.Helper()
	sent := make(chan error)
	go func() {
		_, err := from.Write(make([]byte, n))
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, to, int64(n))
	p.Check(err)
	p.Check(<-sent)
}

// Fin closes one end and, when the other end has read the end of the stream, that end. It waits
// until the kernel has closed both.
func (p *Pair) Fin(first, second *net.TCPConn) {
	p.T.Helper()
	p.Close(first, second)
	p.AwaitEnd()
}

// Close is Fin without waiting for the kernel.
func (p *Pair) Close(first, second *net.TCPConn) {
	p.T.Helper()
	p.Check(first.Close())
	p.Read(second, 0)
	p.Check(second.Close())
}

// Reset closes the connection with an RST from the first end.
func (p *Pair) Reset(first, second *net.TCPConn) {
	p.T.Helper()
	p.Check(first.SetLinger(0))
	p.Check(first.Close())
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		p.T.Errorf("read from a reset connection: %v, want %v", err, unix.ECONNRESET)
	}
	p.Check(second.Close())
	p.AwaitEnd()
}

// Read reads to the end of the stream and expects n bytes.
func (p *Pair) Read(c *net.TCPConn, n int64) {
	p.T.Helper()
	if got, err := io.Copy(io.Discard, c); got != n || err != nil {
		p.T.Errorf("read %d bytes, want %d: %v", got, n, err)
	}
}

// AwaitEnd waits until the kernel has closed both ends; see the function AwaitEnd.
func (p *Pair) AwaitEnd() {
	p.T.Helper()
	p.Check(AwaitEnd(p.T.Context(), p.LPort))
}

// AwaitEnd waits until none of the ports has a connection and the kernel has finished closing them.
// Sockets leave the table of /proc/net/tcp just before their last change of state. Both happen with
// bottom halves disabled, so an RCU grace period waits for the change of state.
func AwaitEnd(ctx context.Context, ports ...int) error {
	for {
		open, err := isOpen(ports)
		if err != nil {
			return err
		}
		if !open {
			return gracePeriod()
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for connections of ports %v to close: %w", ports, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// gracePeriod waits for an RCU grace period: MEMBARRIER_CMD_GLOBAL calls synchronize_rcu.
func gracePeriod() error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, 1, 0, 0); errno != 0 {
		return fmt.Errorf("wait for RCU grace period: %w", errno)
	}
	return nil
}

// Refused connects to a loopback port that has no listener.
func Refused(t testing.TB, port int) {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect to port %d without a listener: %v, want %v", port, err, unix.ECONNREFUSED)
	}
}

// LateHandshake opens two connections to a listener whose accept queue is full after the first. The
// handshake of the second ends late, after the first is accepted.
func LateHandshake(t testing.TB) (first, late *Pair) {
	t.Helper()
	l := Listen(t, "127.0.0.1:0")
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
	if err != nil {
		t.Fatal(err)
	}
	first = &Pair{T: t, Client: Dial(t, l.Addr().String(), 0), RPort: Port(l.Addr())}
	first.LPort = Port(first.Client.LocalAddr())
	before := Overflows(t)
	accepted := make(chan *net.TCPConn)
	go func() {
		for t.Context().Err() == nil && Overflows(t) == before {
			time.Sleep(time.Millisecond)
		}
		s, _ := l.AcceptTCP()
		accepted <- s
	}()
	late = &Pair{T: t, Client: Dial(t, l.Addr().String(), 0), RPort: Port(l.Addr())}
	late.LPort = Port(late.Client.LocalAddr())
	first.Server = <-accepted
	late.Server, err = l.AcceptTCP()
	late.Check(err)
	first.Fin(first.Client, first.Server)
	late.Fin(late.Client, late.Server)
	return first, late
}

// Overflows returns the number of overflows of accept queues (LINUX_MIB_LISTENOVERFLOWS).
func Overflows(t testing.TB) string {
	b, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Error(err)
	}
	lines := strings.Split(string(b), "\n")
	for i, name := range strings.Fields(lines[0]) {
		if name == "ListenOverflows" {
			return strings.Fields(lines[1])[i]
		}
	}
	t.Error("no ListenOverflows in /proc/net/netstat")
	return ""
}

// States in /proc/net/tcp.
const (
	stateEstablished = "01"
	stateTimeWait    = "06"
	stateListen      = "0A"
)

// eachSocket calls f with the state and the ports of each TCP socket of this network namespace.
func eachSocket(f func(state string, lport, rport int)) error {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if fields := strings.Fields(line); fields[0] != "sl" {
				f(fields[3], hexPort(fields[1]), hexPort(fields[2]))
			}
		}
	}
	return nil
}

// isOpen reports whether a socket has one of the ports, except in states LISTEN and TIME_WAIT.
func isOpen(ports []int) (open bool, err error) {
	err = eachSocket(func(state string, lport, rport int) {
		if state != stateTimeWait && state != stateListen && (slices.Contains(ports, lport) || slices.Contains(ports, rport)) {
			open = true
		}
	})
	return open, err
}

// established returns the number of sockets in state ESTABLISHED with the local or remote port.
func established(port int) (n int, err error) {
	err = eachSocket(func(state string, lport, rport int) {
		if state == stateEstablished && (lport == port || rport == port) {
			n++
		}
	})
	return n, err
}

// hexPort returns the port of an address in the format of /proc/net/tcp.
func hexPort(addr string) int {
	n, _ := strconv.ParseUint(addr[strings.LastIndexByte(addr, ':')+1:], 16, 16)
	return int(n)
}

// Rows returns the rows of the client's end and of the server's end.
func (p *Pair) Rows(res *tooltest.Result) (client, server []tooltest.Row) {
	withPorts := func(lport, rport int) []tooltest.Row {
		return res.Where(func(r tooltest.Row) bool {
			return int(r.Num("lport")) == lport && int(r.Num("rport")) == rport
		})
	}
	return withPorts(p.LPort, p.RPort), withPorts(p.RPort, p.LPort)
}

// One returns the only row. It fails the test if there is not exactly one.
func One(t testing.TB, what string, rows []tooltest.Row) tooltest.Row {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows, want 1: %v", what, len(rows), rows)
	}
	return rows[0]
}

// Fields compares fields of a row. what describes the row in failure messages.
func Fields(t testing.TB, what string, r tooltest.Row, want map[string]any) {
	t.Helper()
	for key, w := range want {
		got := r[key]
		if n, ok := w.(int); ok {
			w = float64(n)
		}
		if got != w {
			t.Errorf("%s: %s = %v, want %v", what, key, got, w)
		}
	}
	if t.Failed() {
		t.Logf("%s: %v", what, r)
	}
}
