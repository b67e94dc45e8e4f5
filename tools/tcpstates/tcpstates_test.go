package tcpstates

import (
	"encoding/csv"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// path returns the states of one end, from first to last. The rows are those of the socket that has
// both ports in one of its rows, because the first row may lack the local port.
func path(t testing.TB, res *tooltest.Result, lport, rport int) (states string, rows []tooltest.Row) {
	t.Helper()
	socket := ""
	for _, r := range res.Events {
		if int(r.Num("lport")) == lport && int(r.Num("rport")) == rport {
			socket = r.Str("skaddr")
		}
	}
	for _, r := range res.Events {
		if r.Str("skaddr") != socket || r.Num("rport") != 0 && int(r.Num("rport")) != rport {
			continue
		}
		switch last := states[strings.LastIndexByte(states, ' ')+1:]; last {
		case "":
			states = r.Str("oldstate")
		case r.Str("oldstate"):
		default:
			t.Errorf("%s is followed by a change from %s", last, r.Str("oldstate"))
		}
		states += " " + r.Str("newstate")
		rows = append(rows, r)
	}
	return states, rows
}

// TestPaths ends connections in each way: each end goes through the states of RFC 9293.
func TestPaths(t *testing.T) {
	const active, passive = "CLOSE SYN_SENT ESTABLISHED ", "LISTEN SYN_RECV ESTABLISHED "
	for _, c := range []struct {
		name, listen, host string
		end                func(p *tcptest.Pair)
		client, server     string
	}{
		{"client closes", "127.0.0.1:0", "127.0.0.1", func(p *tcptest.Pair) { p.Fin(p.Client, p.Server) },
			active + "FIN_WAIT1 FIN_WAIT2 CLOSE", passive + "CLOSE_WAIT LAST_ACK CLOSE"},
		{"server closes", "[::1]:0", "::1", func(p *tcptest.Pair) { p.Fin(p.Server, p.Client) },
			active + "CLOSE_WAIT LAST_ACK CLOSE", passive + "FIN_WAIT1 FIN_WAIT2 CLOSE"},
		{"client resets", "[::]:0", "127.0.0.1", func(p *tcptest.Pair) { p.Reset(p.Client, p.Server) },
			active + "CLOSE", passive + "CLOSE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p *tcptest.Pair
			res := tooltest.JSON(t, Tool, nil, func() {
				p = tcptest.Connect(t, tcptest.Listen(t, c.listen), c.host, 0)
				c.end(p)
			})
			states, rows := path(t, res, p.LPort, p.RPort)
			if states != c.client {
				t.Errorf("states of the client are %s, want %s", states, c.client)
			}
			for _, r := range rows {
				tcptest.Fields(t, "client", r, map[string]any{"pid": os.Getpid(), "raddr": c.host, "direction": "active"})
			}
			states, rows = path(t, res, p.RPort, p.LPort)
			if states != c.server {
				t.Errorf("states of the server are %s, want %s", states, c.server)
			}
			for i, r := range rows {
				owner := os.Getpid()
				if i < 2 { // not accepted yet
					owner = 0
				}
				laddr := c.host
				if listener, _, _ := net.SplitHostPort(c.listen); i == 0 && r["laddr"] == listener {
					laddr = listener // the socket is a copy of the listener's; older kernels set the address later
				}
				tcptest.Fields(t, "server", r, map[string]any{"pid": owner, "laddr": laddr, "direction": "passive"})
			}
			if last := rows[len(rows)-1]; (last["error"] == "ECONNRESET") != (c.name == "client resets") {
				t.Errorf("the server's last row has the error %v", last["error"])
			}
		})
	}
}

// TestOthers checks a refused connect and a listener.
func TestOthers(t *testing.T) {
	var lport, rport int
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		lport = tcptest.Port(l.Addr())
		l.Close()
		rport = lport
		tcptest.Refused(t, rport)
	})
	states, rows := path(t, res, lport, 0)
	if states != "CLOSE LISTEN CLOSE" {
		t.Fatalf("states of the listener are %s", states)
	}
	for _, r := range rows {
		tcptest.Fields(t, "listener", r, map[string]any{"pid": os.Getpid(), "direction": nil})
	}
	refused := res.Where(func(r tooltest.Row) bool { return int(r.Num("rport")) == rport })
	if len(refused) != 2 {
		t.Fatalf("%d rows of a refused connect, want 2: %v", len(refused), refused)
	}
	tcptest.Fields(t, "connect", refused[0], map[string]any{"oldstate": "CLOSE", "newstate": "SYN_SENT", "error": nil, "duration_ns": nil})
	tcptest.Fields(t, "refusal", refused[1], map[string]any{"oldstate": "SYN_SENT", "newstate": "CLOSE", "error": "ECONNREFUSED", "pid": os.Getpid()})
}

// TestDurations measures the time in ESTABLISHED and in half-closed states.
func TestDurations(t *testing.T) {
	var p *tcptest.Pair
	var least, most [2]time.Duration
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		before := time.Now()
		p = tcptest.Connect(t, l, "127.0.0.1", 0)
		connected := time.Now()
		p.Send(p.Client, p.Server, 1<<20)
		closing := time.Now()
		p.Check(p.Client.CloseWrite())
		p.Read(p.Server, 0)
		closed := time.Now()
		p.Send(p.Server, p.Client, 1<<20)
		ending := time.Now()
		p.Check(p.Server.Close())
		least = [2]time.Duration{closing.Sub(connected), ending.Sub(closed)}
		most = [2]time.Duration{closed.Sub(before), time.Since(closing)}
		p.Read(p.Client, 0)
		p.Check(p.Client.Close())
		p.AwaitEnd()
	})
	_, rows := path(t, res, p.RPort, p.LPort)
	for i, state := range []string{"ESTABLISHED", "CLOSE_WAIT"} {
		found := false
		for _, r := range rows {
			if r.Str("oldstate") != state {
				continue
			}
			found = true
			if d := time.Duration(r.Num("duration_ns")); d < least[i] || d > most[i] {
				t.Errorf("%s for %s, want between %s and %s", state, d, least[i], most[i])
			}
		}
		if !found {
			t.Errorf("no row with old state %s: %v", state, rows)
		}
	}
}

// TestExisting checks that an older socket has an owner, and no duration.
func TestExisting(t *testing.T) {
	l := tcptest.Listen(t, "127.0.0.1:0")
	p := tcptest.Connect(t, l, "127.0.0.1", 0)
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		p.Fin(p.Client, p.Server)
		l.Close()
	})
	states, rows := path(t, res, p.LPort, p.RPort)
	if states != "ESTABLISHED FIN_WAIT1 FIN_WAIT2 CLOSE" {
		t.Fatalf("states of the client are %s", states)
	}
	if rows[0].Has("duration_ns") || !rows[1].Has("duration_ns") || rows[0].Has("direction") {
		t.Errorf("times and directions that were not observed: %v", rows)
	}
	if states, _ := path(t, res, p.RPort, 0); states != "LISTEN CLOSE" {
		t.Errorf("states of the listener are %s", states)
	}
}

// TestFilters counts the rows of two connections per IP version.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		args func(lport4, rport6 string) []string
		want [2]int
	}{
		{func(_, _ string) []string { return []string{"-4"} }, [2]int{10, 0}},
		{func(_, _ string) []string { return []string{"-6"} }, [2]int{0, 10}},
		{func(_, _ string) []string { return []string{"-4", "-6"} }, [2]int{10, 10}},
		{func(l, _ string) []string { return []string{"-L", "1," + l} }, [2]int{5, 0}},
		{func(_, r string) []string { return []string{"-D", r} }, [2]int{0, 5}},
		{func(l, r string) []string { return []string{"-L", l, "-D", r} }, [2]int{}},
		{func(_, _ string) []string { return []string{"--pid", "1"} }, [2]int{}},
	} {
		l4, l6 := tcptest.Listen(t, "127.0.0.1:0"), tcptest.Listen(t, "[::1]:0")
		port4, port6 := tcptest.Port(l4.Addr()), tcptest.Port(l6.Addr())
		args := c.args(strconv.Itoa(port4), strconv.Itoa(port6))
		var p4, p6 *tcptest.Pair
		res := tooltest.JSON(t, Tool, args, func() {
			p4, p6 = tcptest.Connect(t, l4, "127.0.0.1", 0), tcptest.Connect(t, l6, "::1", 0)
			p4.Fin(p4.Client, p4.Server)
			p6.Fin(p6.Client, p6.Server)
		})
		var got [2]int
		for _, r := range res.Events {
			for i, port := range []int{port4, port6} {
				if int(r.Num("lport")) == port || int(r.Num("rport")) == port {
					got[i]++
				}
			}
		}
		if got != c.want {
			t.Errorf("%q: %d rows of the connections, want %d", args, got, c.want)
		}
	}
}

// TestOutput checks text and CSV.
func TestOutput(t *testing.T) {
	text := func(args ...string) (int, [][]string) {
		var p *tcptest.Pair
		out := tooltest.Text(t, Tool, args, func() {
			p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
			p.Fin(p.Client, p.Server)
		})
		var rows [][]string
		for line := range strings.Lines(out) {
			rows = append(rows, strings.Fields(line))
		}
		if strings.Contains(strings.Join(args, " "), "-s") {
			all, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			rows = all
		}
		return p.LPort, rows
	}
	lport, rows := text("-T", "-t", "-w")
	want := "TIME TIME(s) SKADDR PID COMM LADDR LPORT RADDR RPORT OLDSTATE NEWSTATE MS"
	if got := strings.Join(rows[0], " "); got != want {
		t.Errorf("header %q, want %q", got, want)
	}
	found := 0
	for _, f := range rows[1:] {
		if len(f) == 12 && f[6] == strconv.Itoa(lport) && f[9] == "SYN_SENT" {
			found++
			if f[3] != strconv.Itoa(os.Getpid()) || f[4] != tcptest.Comm() || f[10] != "ESTABLISHED" || f[11] == "-" {
				t.Errorf("line %q", f)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d lines of SYN_SENT to ESTABLISHED, want 1: %q", found, rows)
	}
	lport, rows = text("-s")
	found = 0
	for _, f := range rows[1:] {
		r := map[string]string{}
		for i, key := range rows[0] {
			r[key] = f[i]
		}
		if r["lport"] == strconv.Itoa(lport) && r["oldstate"] == "SYN_SENT" && r["newstate"] == "ESTABLISHED" &&
			r["pid"] == strconv.Itoa(os.Getpid()) && r["duration_ns"] != "" && r["family"] == "4" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d rows of CSV, want 1: %q", found, rows)
	}
}
