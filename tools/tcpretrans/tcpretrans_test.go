package tcpretrans

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, roles) }

// causesOf lists the causes of rows and sums their segments.
func causesOf(rows []tooltest.Row) (causes []string, segments int) {
	for _, r := range rows {
		causes = append(causes, r.Str("cause"))
		segments += int(r.Num("segments"))
	}
	return causes, segments
}

// loseTail drops the end of the data until it is retransmitted n times. It returns the number of
// retransmitted segments according to the kernel.
func loseTail(t testing.TB, p *tcptest.Pair, bytes, n int) (segments int) {
	tcptest.DropReceived(t, p.Server)
	_, err := p.Client.Write(make([]byte, bytes))
	p.Check(err)
	tcptest.AwaitRetransmits(t, p.Client, n)
	tcptest.StopDropping(t, p.Server)
	p.Check(p.Client.CloseWrite())
	p.Read(p.Server, int64(bytes))
	segments = tcptest.Retransmits(t, p.Client)
	p.Check(p.Server.Close())
	p.Read(p.Client, 0)
	p.Check(p.Client.Close())
	p.AwaitEnd()
	return segments
}

// TestTail loses the end of the data: it is retransmitted by a probe, then by the timer. There is a
// row for each segment that the kernel counts.
func TestTail(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		const bytes = 1000
		var p *tcptest.Pair
		l := tcptest.Listen(t, net.JoinHostPort(host, "0"))
		if host == "::1" { // the connection is older than the run
			p = tcptest.Connect(t, l, host, 0)
		}
		var want int
		res := tooltest.JSON(t, Tool, nil, func() {
			if p == nil {
				p = tcptest.Connect(t, l, host, 0)
			}
			want = loseTail(t, p, bytes, 2)
		})
		rows, server := p.Rows(res)
		causes, segments := causesOf(rows)
		if segments != want || len(server) > 0 {
			t.Errorf("%d segments in rows, want %d: %v, %v", segments, want, rows, server)
		}
		if len(causes) < 2 || causes[0] != "probe" || causes[1] != "timeout" {
			t.Fatalf("causes are %q, want a probe and a timeout", causes)
		}
		for i, r := range rows[:2] {
			tcptest.Fields(t, "row "+strconv.Itoa(i), r, map[string]any{
				"pid": os.Getpid(), "comm": tcptest.Comm(), "laddr": host, "raddr": host, "tcp_state": "ESTABLISHED",
				"bytes": bytes, "segments": 1, "error": nil, "kind": []string{"L", "R"}[i], "seq": rows[0]["seq"],
			})
		}
	}
}

// TestFast loses one segment of several: the following ones reveal the loss.
func TestFast(t *testing.T) {
	var p *tcptest.Pair
	var want int
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		p.Send(p.Client, p.Server, 100_000) // opens the window
		before := tcptest.Retransmits(t, p.Client)
		tcptest.DropPayload(t, p.Server, 'D')
		for _, first := range "Dabcdefgh" {
			_, err := p.Client.Write(append([]byte{byte(first)}, make([]byte, 499)...))
			p.Check(err)
		}
		tcptest.AwaitRetransmits(t, p.Client, before+1)
		tcptest.StopDropping(t, p.Server)
		_, err := p.Server.Read(make([]byte, 1))
		p.Check(err)
		want = tcptest.Retransmits(t, p.Client)
	})
	rows, _ := p.Rows(res)
	causes, segments := causesOf(rows)
	if segments != want || len(rows) == 0 {
		t.Fatalf("%d segments in %d rows, want %d", segments, len(rows), want)
	}
	// A stalled machine can send probes before.
	fast := slices.IndexFunc(causes, func(cause string) bool { return cause != "probe" })
	if fast < 0 || causes[fast] != "fast" {
		t.Fatalf("causes are %q, want fast first", causes)
	}
	tcptest.Fields(t, "first", rows[fast], map[string]any{"bytes": 500, "kind": "R"})
}

// TestSYN retransmits a SYN, and nothing else.
func TestSYN(t *testing.T) {
	var late *tcptest.Pair
	res := tooltest.JSON(t, Tool, nil, func() { _, late = tcptest.LateHandshake(t) })
	rows, _ := late.Rows(res)
	if len(rows) == 0 {
		t.Fatal("no row of the client")
	}
	tcptest.Fields(t, "SYN", rows[0], map[string]any{
		"pid": os.Getpid(), "tcp_state": "SYN_SENT", "cause": "timeout", "bytes": 0, "segments": 1,
	})
}

// TestSYNACK uses a listener that defers accept until data arrives: after a second it retransmits
// its SYN/ACK.
func TestSYNACK(t *testing.T) {
	var client *net.TCPConn
	var rport int
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		rport = tcptest.Port(l.Addr())
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1) })
		if err != nil {
			t.Fatal(err)
		}
		client = tcptest.Dial(t, l.Addr().String(), 0)
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("cause") == "synack" && int(r.Num("lport")) == rport })
	tcptest.Fields(t, "SYN/ACK", tcptest.One(t, "SYN/ACK", rows), map[string]any{
		"pid": os.Getpid(), "laddr": "127.0.0.1", "raddr": "127.0.0.1", "rport": tcptest.Port(client.LocalAddr()),
		"tcp_state": "NEW_SYN_RECV", "bytes": 0, "segments": 1, "kind": "R",
	})
}

// TestCount counts the rows of a connection.
func TestCount(t *testing.T) {
	var p *tcptest.Pair
	var want int
	res := tooltest.JSON(t, Tool, []string{"-c"}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		want = loseTail(t, p, 1000, 1)
	})
	rows, _ := p.Rows(res)
	tcptest.Fields(t, "connection", tcptest.One(t, "connection", rows), map[string]any{"count": want, "cause": nil})
}

// TestFilters excludes rows of the other IP version, or of another task.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{{[]string{"-4"}, true}, {[]string{"-6"}, false}, {[]string{"--pid", "1"}, false}, {[]string{"-l", "--comm", tcptest.Comm()}, true}} {
		var p *tcptest.Pair
		res := tooltest.JSON(t, Tool, c.args, func() {
			p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
			loseTail(t, p, 1000, 1)
		})
		if rows, _ := p.Rows(res); len(rows) > 0 != c.want {
			t.Errorf("%q: %d rows", c.args, len(rows))
		}
	}
}

// TestText checks the columns of text.
func TestText(t *testing.T) {
	var p *tcptest.Pair
	out := tooltest.Text(t, Tool, []string{"-s"}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		loseTail(t, p, 1000, 1)
	})
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if want := "TIME PID IP LADDR LPORT T RADDR RPORT STATE CAUSE SEQ"; lines[0] != want {
		t.Errorf("header %q, want %q", lines[0], want)
	}
	want := fmt.Sprintf(" %d 4 127.0.0.1 %d L 127.0.0.1 %d ESTABLISHED probe ", os.Getpid(), p.LPort, p.RPort)
	if !strings.Contains(strings.Join(lines, "\n"), want) {
		t.Errorf("%q is missing in %q", want, lines)
	}
}
