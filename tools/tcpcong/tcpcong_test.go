package tcpcong

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// States of tcpi_ca_state.
const (
	open = 0
	loss = 4
)

// awaitState waits until the client is in a congestion state, according to the kernel.
func awaitState(p *tcptest.Pair, state uint8) {
	raw, err := p.Client.SyscallConn()
	p.Check(err)
	p.Check(raw.Control(func(fd uintptr) {
		for p.T.Context().Err() == nil {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			p.Check(err)
			if err != nil || info.Ca_state == state {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}))
}

// lose drops data of the client until the retransmission timer has expired, and returns the shortest
// and the longest possible time in state Loss.
func lose(p *tcptest.Pair) (least, most time.Duration) {
	tcptest.DropReceived(p.T, p.Server)
	begin := time.Now()
	_, err := p.Client.Write(make([]byte, 1000))
	p.Check(err)
	awaitState(p, loss)
	since := time.Now()
	time.Sleep(20 * time.Millisecond)
	least = time.Since(since)
	tcptest.StopDropping(p.T, p.Server)
	_, err = p.Server.Read(make([]byte, 1000))
	p.Check(err)
	awaitState(p, open)
	return least, time.Since(begin)
}

// support skips the test on kernels without the tracepoint; see TestUnsupported.
func support(t *testing.T) {
	t.Helper()
	if !tooltest.HasTracepoint(t, "tcp_cong_state_set") {
		t.Skip("the kernel has no tracepoint tcp_cong_state_set: from 5.18 on")
	}
}

// TestUnsupported checks that the tool names the missing tracepoint.
func TestUnsupported(t *testing.T) {
	tooltest.Root(t)
	if tooltest.HasTracepoint(t, "tcp_cong_state_set") {
		t.Skip("the kernel has the tracepoint tcp_cong_state_set")
	}
	tooltest.Fails(t, Tool, nil, 4, "tcp_cong_state_set")
}

// TestLoss compares the time in state Loss with that seen in TCP_INFO. A connection without loss has
// no row.
func TestLoss(t *testing.T) {
	support(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	calm := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	var least, most time.Duration
	res := tooltest.JSON(t, Tool, []string{"-L", strconv.Itoa(p.LPort) + "," + strconv.Itoa(calm.LPort)}, func() {
		calm.Send(calm.Client, calm.Server, 100_000)
		least, most = lose(p)
	})
	r := tcptest.One(t, "loss", res.Rows)
	tcptest.Fields(t, "loss", r, map[string]any{"lport": p.LPort, "rport": p.RPort, "laddr": "127.0.0.1", "raddr": "127.0.0.1"})
	if d := time.Duration(r.Num("loss_ns")); d < least || d > most || r.Num("changes") < 2 {
		t.Errorf("%s in state Loss, want at least %s and at most %s, and 2 changes: %v", d, least, most, r)
	}
	if d := r.Num("open_ns") + r.Num("disorder_ns") + r.Num("recovery_ns") + r.Num("cwr_ns") + r.Num("loss_ns"); d > r.Num("interval_ns") {
		t.Errorf("%v ns in all states, in an interval of %v ns", d, r.Num("interval_ns"))
	}
}

// TestIntervals has connections that change their state all the time. The time of each in an interval
// is at most the interval; in intervals between others it is exactly that.
func TestIntervals(t *testing.T) {
	support(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	res := tooltest.JSONReports(t, Tool, []string{"-L", strconv.Itoa(p.LPort), "100ms"}, func(reports func() int) {
		for reports() < 8 && t.Context().Err() == nil {
			lose(p)
		}
	})
	for i, r := range res.Rows {
		d := r.Num("open_ns") + r.Num("disorder_ns") + r.Num("recovery_ns") + r.Num("cwr_ns") + r.Num("loss_ns")
		if d > r.Num("interval_ns") || i > 0 && i < len(res.Rows)-1 && d < r.Num("interval_ns") {
			t.Errorf("%v ns in all states, in interval %d of %v ns: %v", d, i, r.Num("interval_ns"), r)
		}
	}
	if len(res.Rows) < 6 {
		t.Errorf("%d rows in at least 8 intervals", len(res.Rows))
	}
}

// TestClosed closes the connection in state Loss.
func TestClosed(t *testing.T) {
	support(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	for _, args := range [][]string{{"-d", "-u"}, nil} {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		res := tooltest.JSON(t, Tool, append(args, "-L", strconv.Itoa(p.LPort)), func() {
			tcptest.DropReceived(t, p.Server)
			_, err := p.Client.Write(make([]byte, 1000))
			p.Check(err)
			awaitState(p, loss)
			p.Check(p.Client.SetLinger(0))
			p.Check(p.Client.Close())
		})
		if args == nil {
			if r := tcptest.One(t, "closed", res.Rows); r.Num("loss_ns") <= 0 {
				t.Errorf("no time in state Loss: %v", r)
			}
			continue
		}
		h := tcptest.One(t, "closed", slices.DeleteFunc(res.Histograms, func(r tooltest.Row) bool {
			return r.Object("key").Str("state") != "loss"
		}))
		if h.Num("count") != 1 || h.Str("unit") != "usecs" {
			t.Errorf("histogram of one time in state Loss: %v", h)
		}
	}
}

func TestText(t *testing.T) {
	support(t)
	tooltest.AnyAttachType(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	out := tooltest.Text(t, Tool, []string{"-T", "-u", "-R", "1-" + strconv.Itoa(p.RPort)}, func() { lose(p) })
	out = strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"TIME LAddrPort RAddrPort Open_us Dod_us Rcov_us Cwr_us Los_us Chgs",
		" 127.0.0.1:" + strconv.Itoa(p.LPort) + " 127.0.0.1:" + strconv.Itoa(p.RPort) + " ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}
