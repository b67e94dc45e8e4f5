package tcpconnect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) {
	tcptest.Main(m, map[string]func() error{"lost": lostRole, "names": namesRole, "names386": names386Role})
}

// lostRole connects in a network namespace without routes.
func lostRole() error {
	_, err := net.Dial("tcp4", "192.0.2.1:9")
	if !errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("connect without a route: %w", err)
	}
	return nil
}

// to returns the rows of connects to a port.
func to(res *tooltest.Result, rport int) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool { return int(r.Num("rport")) == rport })
}

// socket returns a non-blocking TCP socket that is bound to a port of the loopback interface.
func socket(t testing.TB, lport int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if lport > 0 {
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, local(lport))); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func local(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

// wait waits until the connect has succeeded or failed. A signal can interrupt it.
func wait(t *testing.T, fd int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(fds, -1)
	for err == unix.EINTR {
		_, err = unix.Poll(fds, -1)
	}
	if err != nil {
		t.Error(err)
	}
}

// closedPort returns a port without a listener.
func closedPort(t testing.TB) int {
	l := tcptest.Listen(t, "127.0.0.1:0")
	defer l.Close()
	return tcptest.Port(l.Addr())
}

// TestConnected checks one row per connection, of the connecting end only.
func TestConnected(t *testing.T) {
	for _, c := range []struct {
		listen, host string
		family       int
	}{{"127.0.0.1:0", "127.0.0.1", 4}, {"[::1]:0", "::1", 6}, {"[::]:0", "127.0.0.1", 4}} {
		var p *tcptest.Pair
		var most time.Duration
		res := tooltest.JSON(t, Tool, nil, func() {
			l := tcptest.Listen(t, c.listen)
			begin := time.Now()
			p = tcptest.Connect(t, l, c.host, 0)
			most = time.Since(begin)
			p.Fin(p.Server, p.Client)
		})
		r := tcptest.One(t, c.listen, to(res, p.RPort))
		tcptest.Fields(t, c.listen, r, map[string]any{
			"pid": os.Getpid(), "comm": tcptest.Comm(), "laddr": c.host, "raddr": c.host, "lport": p.LPort,
			"family": c.family, "result": "connected", "error": nil,
		})
		if d := time.Duration(r.Num("duration_ns")); d <= 0 || d > most {
			t.Errorf("duration is %s, want at most %s", d, most)
		}
		if other := to(res, p.LPort); len(other) > 0 {
			t.Errorf("rows of the accepting end: %v", other)
		}
	}
}

// TestFailed checks one row per failed connect, for several kinds of failures.
func TestFailed(t *testing.T) {
	refused, polled, inUse := closedPort(t), closedPort(t), 0
	child := tcptest.InRole("lost")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	res := tooltest.JSON(t, Tool, nil, func() {
		tcptest.Refused(t, refused)

		// It calls connect again to get the result of the first one.
		fd := socket(t, 0)
		defer unix.Close(fd)
		if err := unix.Connect(fd, local(polled)); err != unix.EINPROGRESS {
			t.Errorf("connect: %v", err)
		}
		wait(t, fd)
		if err := unix.Connect(fd, local(polled)); err != unix.ECONNREFUSED {
			t.Errorf("connect once more: %v", err)
		}

		// Two connects with the same addresses and ports.
		l := tcptest.Listen(t, "127.0.0.1:0")
		inUse = tcptest.Port(l.Addr())
		lport := closedPort(t)
		first, second := socket(t, lport), socket(t, lport)
		defer unix.Close(first)
		defer unix.Close(second)
		if err := unix.Connect(first, local(inUse)); err != unix.EINPROGRESS {
			t.Errorf("connect: %v", err)
		}
		if err := unix.Connect(second, local(inUse)); err != unix.EADDRNOTAVAIL {
			t.Errorf("connect with the same addresses: %v", err)
		}
		tcptest.Output(t, child)
	})
	failed := func(what string, r tooltest.Row, name string, sent bool) {
		t.Helper()
		tcptest.Fields(t, what, r, map[string]any{"result": "failed", "error": name})
		if r.Has("duration_ns") != sent {
			t.Errorf("%s: duration %v", what, r["duration_ns"])
		}
	}
	failed("refused", tcptest.One(t, "refused", to(res, refused)), "ECONNREFUSED", true)
	failed("polled", tcptest.One(t, "polled", to(res, polled)), "ECONNREFUSED", true)
	rows := to(res, inUse)
	if len(rows) != 2 {
		t.Fatalf("%d rows of two connects, want 2: %v", len(rows), rows)
	}
	for _, r := range rows {
		if r.Str("result") == "failed" {
			failed("taken", r, "EADDRNOTAVAIL", false)
			tcptest.Fields(t, "taken", r, map[string]any{"pid": os.Getpid(), "raddr": "127.0.0.1"})
		}
	}
	lost := tcptest.One(t, "lost", res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == child.Process.Pid }))
	failed("lost", lost, "ENETUNREACH", false)
	tcptest.Fields(t, "lost", lost, map[string]any{"raddr": "192.0.2.1", "rport": 9})
}

// TestLate checks a connect that takes a second and has two rows.
func TestLate(t *testing.T) {
	var late *tcptest.Pair
	res := tooltest.JSON(t, Tool, nil, func() { _, late = tcptest.LateHandshake(t) })
	var got []string
	for _, r := range to(res, late.RPort) {
		who := "first "
		if int(r.Num("lport")) == late.LPort {
			who = "late "
			if ms := r.Num("duration_ns") / 1e6; ms < 900 || ms > 3500 {
				t.Errorf("duration is %.1f ms, want one second until the retransmission", ms)
			}
		}
		got = append(got, who+r.Str("result"))
	}
	if want := "first connected,late waiting,late connected"; strings.Join(got, ",") != want {
		t.Errorf("rows are %q, want %s", got, want)
	}
}

// TestClosed closes one socket before an answer, and leaves another waiting at the end.
func TestClosed(t *testing.T) {
	var rport int
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		rport = tcptest.Port(l.Addr())
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
		if err != nil {
			t.Fatal(err)
		}
		tcptest.Dial(t, l.Addr().String(), 0) // fills the backlog
		for i := range 2 {
			fd := socket(t, 0)
			if err := unix.Connect(fd, local(rport)); err != unix.EINPROGRESS {
				t.Errorf("connect: %v", err)
			}
			if i == 0 {
				unix.Close(fd)
			} else {
				t.Cleanup(func() { unix.Close(fd) })
			}
		}
	})
	count := map[string]int{}
	for _, r := range to(res, rport) {
		tcptest.Fields(t, "connect", r, map[string]any{"error": nil, "pid": os.Getpid()})
		count[r.Str("result")]++
	}
	if len(count) != 3 || count["connected"] != 1 || count["closed"] != 1 || count["waiting"] != 1 {
		t.Errorf("rows are %v, want one connected, one closed, one waiting", count)
	}
}

// TestFilters counts the rows of one connect per IP version.
func TestFilters(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args func(port4, port6 string) []string
		want [2]int
	}{
		{func(_, _ string) []string { return []string{"-4", "-p", me} }, [2]int{1, 0}},
		{func(_, _ string) []string { return []string{"-6", "-u", "0"} }, [2]int{0, 1}},
		{func(l, _ string) []string { return []string{"-P", "1," + l} }, [2]int{1, 0}},
		{func(_, _ string) []string { return []string{"--pid", "1"} }, [2]int{}},
	} {
		l4, l6 := tcptest.Listen(t, "127.0.0.1:0"), tcptest.Listen(t, "[::1]:0")
		port4, port6 := tcptest.Port(l4.Addr()), tcptest.Port(l6.Addr())
		args := c.args(strconv.Itoa(port4), strconv.Itoa(port6))
		res := tooltest.JSON(t, Tool, args, func() {
			tcptest.Connect(t, l4, "127.0.0.1", 0)
			tcptest.Connect(t, l6, "::1", 0)
		})
		if got := [2]int{len(to(res, port4)), len(to(res, port6))}; got != c.want {
			t.Errorf("%q: %d rows, want %d", args, got, c.want)
		}
	}
}

// TestCount counts connects to two ports, by default and by given columns.
func TestCount(t *testing.T) {
	var busy, idle int
	load := func() {
		b, i := tcptest.Listen(t, "127.0.0.1:0"), tcptest.Listen(t, "127.0.0.1:0")
		busy, idle = tcptest.Port(b.Addr()), tcptest.Port(i.Addr())
		for range 7 {
			tcptest.Connect(t, b, "127.0.0.1", 0)
		}
		tcptest.Connect(t, i, "127.0.0.1", 0)
		i.Close()
		tcptest.Refused(t, idle)
	}
	res := tooltest.JSON(t, Tool, []string{"-c", "--comm", tcptest.Comm()}, load)
	b, i := tcptest.One(t, "busy", to(res, busy)), tcptest.One(t, "idle", to(res, idle))
	tcptest.Fields(t, "busy", b, map[string]any{"count": 7, "laddr": "127.0.0.1", "raddr": "127.0.0.1", "pid": nil})
	tcptest.Fields(t, "idle", i, map[string]any{"count": 2})
	if len(res.Events) != 2 || int(res.Events[0].Num("rport")) != busy || res.Summary.Num("events") != 9 {
		t.Errorf("rows are not sorted, or not all counted: %v, %v", res.Events, res.Summary)
	}
	res = tooltest.JSON(t, Tool, []string{"-c", "--comm", tcptest.Comm(), "--columns", "pid,error,count", "--limit", "1"}, load)
	r := tcptest.One(t, "all", res.Events)
	tcptest.Fields(t, "all", r, map[string]any{"pid": os.Getpid(), "error": nil, "count": 8})

	out := tooltest.Text(t, Tool, []string{"-c", "-s", "--comm", tcptest.Comm()}, load)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 10 || strings.Join(strings.Fields(lines[0]), " ") != "LADDR LPORT RADDR RPORT CONNECTS" {
		t.Errorf("text is %q", out)
	}
}

// TestText checks the columns of text.
func TestText(t *testing.T) {
	var p *tcptest.Pair
	out := tooltest.Text(t, Tool, []string{"-t", "-U", "-L"}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	})
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if want := "TIME(s) UID PID COMM IP SADDR LPORT DADDR DPORT RESULT ERROR"; lines[0] != want {
		t.Errorf("header %q, want %q", lines[0], want)
	}
	want := fmt.Sprintf(" 0 %d %s 4 127.0.0.1 %d 127.0.0.1 %d connected -", os.Getpid(), tcptest.Comm(), p.LPort, p.RPort)
	if !strings.Contains(strings.Join(lines, "\n"), want) {
		t.Errorf("%q is missing in %q", want, lines)
	}
}

// TestMany checks that each of many connects is shown or counted as lost.
func TestMany(t *testing.T) {
	const n = 2000
	var port int
	res := tooltest.JSON(t, Tool, nil, func() { port = tcptest.Resets(t, n) })
	tooltest.CheckTotal(t, res.Summary, len(to(res, port)), n)
}

// TestFastOpen measures from the SYN, which is sent with the first data with TCP_FASTOPEN_CONNECT.
func TestFastOpen(t *testing.T) {
	var rport int
	var most time.Duration
	var err error
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		rport = tcptest.Port(l.Addr())
		var sent time.Time
		var done func() error
		if _, sent, done, err = tcptest.FastOpen(t, rport); err != nil {
			return
		}
		defer done()
		if _, err = l.AcceptTCP(); err == nil {
			most = time.Since(sent)
		}
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := tcptest.One(t, "fast open", to(res, rport))
	if d := time.Duration(r.Num("duration_ns")); d <= 0 || d > most {
		t.Errorf("duration since the SYN is %s, want at most %s", d, most)
	}
}

// TestLatency selects slow connects under the name of the peers' tool: all but a connect that takes
// a second are too fast.
func TestLatency(t *testing.T) {
	alias := Tool.As("tcpconnlat")
	var late *tcptest.Pair
	res := tooltest.JSON(t, alias, []string{"-p", strconv.Itoa(os.Getpid()), "900"}, func() { _, late = tcptest.LateHandshake(t) })
	var results []string
	for _, r := range to(res, late.RPort) {
		tcptest.Fields(t, "late", r, map[string]any{"lport": late.LPort})
		results = append(results, r.Str("result"))
	}
	if got := strings.Join(results, " "); got != "waiting connected" {
		t.Errorf("rows of connects that take 900 ms or more: %q", got)
	}
	res = tooltest.JSON(t, alias, []string{"--min", "1h"}, func() {
		tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		tcptest.Refused(t, closedPort(t))
	})
	if len(res.Events) > 0 {
		t.Errorf("rows of connects that take an hour: %v", res.Events)
	}
}

// TestLatencyText compares the latency in text with the time that the connect took.
func TestLatencyText(t *testing.T) {
	tooltest.AnyAttachType(t)
	var p *tcptest.Pair
	out := tooltest.Text(t, Tool.As("tcpconnlat"), []string{"-L", "-t"}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	})
	header, _, _ := strings.Cut(out, "\n")
	if got := strings.Join(strings.Fields(header), " "); got != "TIME(s) PID COMM IP SADDR LPORT DADDR DPORT LAT(ms) RESULT ERROR" {
		t.Errorf("header %q", got)
	}
	ends := fmt.Sprintf("127.0.0.1 %d 127.0.0.1 %d ", p.LPort, p.RPort)
	for line := range strings.Lines(out) {
		words := strings.Join(strings.Fields(line), " ")
		if _, rest, ok := strings.Cut(words, ends); ok {
			if ms, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err != nil || ms <= 0 || !strings.HasSuffix(rest, " connected -") {
				t.Errorf("line %q: %v", words, err)
			}
			return
		}
	}
	t.Errorf("no line of the connection in %q", out)
}
