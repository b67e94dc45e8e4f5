package tcptop

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() string { return strconv.Itoa(os.Getpid()) }

// connect returns both ends of a connection to an address of this machine.
func connect(t *testing.T, network, address string) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP(network, &net.TCPAddr{IP: net.ParseIP(address)})
	if err != nil {
		if network == "tcp6" && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
			t.Skipf("this machine has no IPv6: %v", err)
		}
		t.Fatalf("listen on %s: %v", address, err)
	}
	defer l.Close()
	client, err = net.DialTCP(network, nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// move sends n bytes from one end to the other. They can be read before the sending call returns,
// which is when they are counted.
func move(t *testing.T, from, to *net.TCPConn, n int) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() {
		if _, err := from.Write(make([]byte, n)); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(to, make([]byte, n)); err != nil {
		t.Error(err)
	}
	writing.Wait()
}

// total sums bytes sent and received at an end.
func total(rows []tooltest.Row, end net.Conn) (sent, received float64) {
	for _, r := range rows {
		if r.Str("laddr")+"|"+strconv.Itoa(int(r.Num("lport"))) == addr(end.LocalAddr()) &&
			r.Str("raddr")+"|"+strconv.Itoa(int(r.Num("rport"))) == addr(end.RemoteAddr()) {
			sent += r.Num("tx_bytes")
			received += r.Num("rx_bytes")
		}
	}
	return sent, received
}

func addr(a net.Addr) string {
	tcp := a.(*net.TCPAddr)
	return tcp.IP.String() + "|" + strconv.Itoa(tcp.Port)
}

func check(t *testing.T, rows []tooltest.Row, end net.Conn, sent, received float64) {
	t.Helper()
	if s, r := total(rows, end); s != sent || r != received {
		t.Errorf("%v: sent %v, received %v, want %v, %v", addr(end.LocalAddr()), s, r, sent, received)
	}
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct{ network, address string }{{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}} {
		t.Run(tt.network, func(t *testing.T) {
			client, server := connect(t, tt.network, tt.address)
			res := tooltest.JSON(t, Tool, []string{"--pid", self(), "50ms"}, func() {
				move(t, client, server, 3_000_000) // more than the buffers can hold
				move(t, server, client, 12345)
			})
			check(t, res.Rows, client, 3_000_000, 12345)
			check(t, res.Rows, server, 12345, 3_000_000)
		})
	}
}

// connectMPTCP returns both ends of an MPTCP connection.
func connectMPTCP(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.DialContext(t.Context(), "tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client, server = c.(*net.TCPConn), s.(*net.TCPConn)
	for _, end := range []*net.TCPConn{client, server} {
		if on, err := end.MultipathTCP(); !on || err != nil {
			t.Skipf("MPTCP is unavailable: connection uses it: %v, %v", on, err)
		}
	}
	return client, server
}

// TestMPTCP checks that an MPTCP connection is one row, with bytes sent and received, excluding
// MSG_PEEK.
func TestMPTCP(t *testing.T) {
	client, server := connectMPTCP(t)
	res := tooltest.JSON(t, Tool, []string{"--pid", self(), "50ms"}, func() {
		move(t, client, server, 387)
		if _, err := server.Write(make([]byte, 20_000)); err != nil {
			t.Error(err)
		}
		raw, err := client.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			// Wait for it, because the descriptor is non-blocking.
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
				t.Error(err)
			}
			if _, _, err := unix.Recvfrom(int(fd), make([]byte, 1000), unix.MSG_PEEK); err != nil {
				t.Error(err)
			}
		})
		if _, err := io.ReadFull(client, make([]byte, 20_000)); err != nil {
			t.Error(err)
		}
	})
	check(t, res.Rows, client, 387, 20_000)
	check(t, res.Rows, server, 20_000, 387)
}

// byKprobe reports whether received data is traced with kprobes.
func byKprobe(res *tooltest.Result) bool {
	return slices.ContainsFunc(res.Ready.List("hooks"), func(hook string) bool { return strings.HasPrefix(hook, "recv: kprobe") })
}

// TestPeekAndFull checks that data read with MSG_PEEK is not counted, nor data that did not fit in
// the buffer.
func TestPeekAndFull(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	var sent int
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		raw, err := client.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			for { // until the buffer cannot take all of it, and then nothing
				n, err := unix.SendmsgN(int(fd), make([]byte, 1<<20), nil, nil, unix.MSG_DONTWAIT)
				if err != nil {
					return
				}
				sent += n
			}
		})
		raw, err = server.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if _, _, err := unix.Recvfrom(int(fd), make([]byte, 1000), unix.MSG_PEEK); err != nil {
				t.Error(err)
			}
		})
	})
	if sent == 0 {
		t.Fatal("nothing was sent")
	}
	check(t, res.Rows, client, float64(sent), 0)
	if byKprobe(res) {
		check(t, res.Rows, server, 0, 1000) // the hook cannot distinguish MSG_PEEK
	} else {
		check(t, res.Rows, server, 0, 0)
	}
}

// fdOf returns the descriptor of a connection that stays open during the test.
func fdOf(t *testing.T, c *net.TCPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestQuickAck acknowledges each byte with TCP_QUICKACK, for which the kernel calls the function that ends
// a read, as if a byte had been read.
func TestQuickAck(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	fd := fdOf(t, server)
	const n = 200
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		for range n {
			for i := range 2 { // 0 delays acknowledgements, so that one is due when 1 requests it
				if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, i); err != nil {
					t.Error(err)
				}
				if i == 0 {
					move(t, client, server, 1)
				}
			}
		}
	})
	check(t, res.Rows, client, n, 0)
	hooks := strings.Join(res.Ready.List("hooks"), " ")
	if strings.Contains(hooks, "tcp_cleanup_rbuf") && !strings.Contains(hooks, "tcp_setsockopt") {
		t.Skip("setsockopt is not traced: ", hooks)
	}
	check(t, res.Rows, server, 0, n)
}

// TestWaitAll reads two parts with one call, which waits for the second one.
func TestWaitAll(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	fd := fdOf(t, server)
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	const first, second = 300, 70
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		var reading sync.WaitGroup
		reading.Go(func() {
			for left := first + second; left > 0; { // Go sends signals, which end a call early
				n, _, err := unix.Recvfrom(fd, make([]byte, left), unix.MSG_WAITALL)
				if err != nil && !errors.Is(err, unix.EINTR) {
					t.Error(err)
					return
				}
				left -= max(n, 0)
			}
		})
		for _, n := range []int{first, second} {
			if _, err := client.Write(make([]byte, n)); err != nil {
				t.Error(err)
			}
			for queued := 1; queued > 0; { // until it was read
				var err error
				if queued, err = unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil {
					t.Error(err)
				}
			}
		}
		reading.Wait()
	})
	check(t, res.Rows, client, first+second, 0)
	if !byKprobe(res) { // which counts the first part again
		check(t, res.Rows, server, 0, first+second)
	}
}

func TestSendfile(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(50000); err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		if n, err := client.ReadFrom(file); n != 50000 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if _, err := io.ReadFull(server, make([]byte, 50000)); err != nil {
			t.Error(err)
		}
	})
	hooks := strings.Join(res.Ready.List("hooks"), " ")
	// From 6.5 on (1d7e4538a546) sendfile calls tcp_sendmsg, before that tcp_sendpage.
	if !strings.Contains(hooks, "send_length") && !strings.Contains(hooks, "sendpage") && tooltest.HasFunction(t, "tcp_sendpage") {
		if tooltest.Forced() {
			t.Skipf("another hook is forced: %s", hooks)
		}
		tooltest.Fentry(t)
		t.Fatalf("sendfile can be traced with fentry, the tool attached to %s", hooks)
	}
	check(t, res.Rows, client, 50000, 0)
	check(t, res.Rows, server, 0, 50000)
}

func TestFilters(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	client6, server6 := connect(t, "tcp6", "::1")
	load := func() {
		move(t, client, server, 100)
		move(t, client6, server6, 60)
	}
	for _, tt := range []struct {
		args   []string
		v4, v6 float64
	}{
		{[]string{"-4"}, 100, 0}, {[]string{"-6"}, 0, 60}, {[]string{"-4", "-6"}, 100, 60}, {[]string{"--comm", "another"}, 0, 0},
	} {
		res := tooltest.JSON(t, Tool, tt.args, load)
		check(t, res.Rows, client, tt.v4, 0)
		check(t, res.Rows, server6, 0, tt.v6)
	}
}

func TestText(t *testing.T) {
	client, server := connect(t, "tcp4", "127.0.0.1")
	out := tooltest.Text(t, Tool, []string{"--pid", self(), "-S", "-s", "sent", "60"}, func() { move(t, client, server, 20480) })
	lines := strings.Split(out, "\n")
	if len(lines) < 4 || strings.Contains(lines[0], "loadavg") || strings.Join(strings.Fields(lines[1]), " ") != "PID COMM LADDR RADDR RX_KB TX_KB" {
		t.Fatalf("%q", out)
	}
	// Both ends have transferred the same, so either can come first.
	want := strings.Join([]string{self(), client.LocalAddr().String(), client.RemoteAddr().String(), "0.00", "20.00"}, " ")
	if !slices.ContainsFunc(lines[2:4], func(line string) bool {
		f := strings.Fields(line)
		return len(f) == 6 && strings.Join(slices.Delete(f, 1, 2), " ") == want
	}) {
		t.Errorf("%q, want a line of %s", lines[2:4], want)
	}
}
