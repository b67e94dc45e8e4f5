package tcplife

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

const (
	fromClient = 5000
	fromServer = 1234567
)

// ending is a way to end a connection, with the resulting rows of both ends.
type ending struct {
	name           string
	end            func(p *tcptest.Pair)
	client, server map[string]any
}

func endings() []ending {
	return []ending{
		{"client closes", func(p *tcptest.Pair) { p.Fin(p.Client, p.Server) },
			map[string]any{"tcp_state": "FIN_WAIT2"}, map[string]any{"tcp_state": "LAST_ACK"}},
		{"server closes", func(p *tcptest.Pair) { p.Fin(p.Server, p.Client) },
			map[string]any{"tcp_state": "LAST_ACK"}, map[string]any{"tcp_state": "FIN_WAIT2"}},
		{"client resets", func(p *tcptest.Pair) { p.Reset(p.Client, p.Server) },
			map[string]any{"tcp_state": "ESTABLISHED"}, map[string]any{"tcp_state": "ESTABLISHED", "error": "ECONNRESET"}},
		{"server resets", func(p *tcptest.Pair) { p.Reset(p.Server, p.Client) },
			map[string]any{"tcp_state": "ESTABLISHED", "error": "ECONNRESET"}, map[string]any{"tcp_state": "ESTABLISHED"}},
		{"client shuts down and is reset", func(p *tcptest.Pair) {
			p.Check(p.Client.CloseWrite())
			if _, err := p.Server.Read(make([]byte, 1)); err == nil {
				p.T.Error("read after the end")
			}
			p.Reset(p.Server, p.Client)
			// The FIN may or may not be acknowledged before the RST.
		}, map[string]any{"error": "ECONNRESET"}, map[string]any{"tcp_state": "CLOSE_WAIT"}},
	}
}

// TestConnections checks each protocol and each ending, with data in both directions.
func TestConnections(t *testing.T) {
	type done struct {
		*tcptest.Pair
		name string
		ending
		host   string
		family int
	}
	var all []done
	res := tooltest.JSON(t, Tool, nil, func() {
		for _, net := range []struct {
			name, listen, host string
			family             int
		}{
			{"IPv4", "127.0.0.1:0", "127.0.0.1", 4},
			{"IPv6", "[::1]:0", "::1", 6},
			{"mapped", "[::]:0", "127.0.0.1", 4},
		} {
			l := tcptest.Listen(t, net.listen)
			for _, e := range endings() {
				p := tcptest.Connect(t, l, net.host, 0)
				p.Send(p.Client, p.Server, fromClient)
				p.Send(p.Server, p.Client, fromServer)
				e.end(p)
				all = append(all, done{p, net.name + ", " + e.name, e, net.host, net.family})
			}
		}
	})
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			both := map[string]any{
				"pid": os.Getpid(), "laddr": d.host, "raddr": d.host, "family": d.family,
				"state": "closed", "partial": false,
			}
			client, server := d.Rows(res)
			c, s := tcptest.One(t, "client", client), tcptest.One(t, "server", server)
			for what, r := range map[string]tooltest.Row{"client": c, "server": s} {
				tcptest.Fields(t, what, r, both)
				if est := r.Num("established_ns"); est <= 0 || r.Num("duration_ns") <= est {
					t.Errorf("%s: %v ns, %v of them established", what, r.Num("duration_ns"), est)
				}
			}
			tcptest.Fields(t, "client", c, map[string]any{"tx_bytes": fromClient, "rx_bytes": fromServer, "direction": "active"})
			tcptest.Fields(t, "server", s, map[string]any{"tx_bytes": fromServer, "rx_bytes": fromClient, "direction": "passive"})
			tcptest.Fields(t, "client", c, d.ending.client)
			tcptest.Fields(t, "server", s, d.ending.server)
		})
	}
}

// TestFinWithData closes while data is delayed, so that the FIN is in its segment.
func TestFinWithData(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var p *tcptest.Pair
	const n = 700
	res := tooltest.JSON(t, Tool, nil, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		raw, err := p.Client.SyscallConn()
		p.Check(err)
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		p.Check(err)
		_, err = p.Client.Write(make([]byte, n))
		p.Check(err)
		p.Check(p.Client.Close())
		p.Read(p.Server, n)
		p.Check(p.Server.Close())
		p.AwaitEnd()
	})
	client, server := p.Rows(res)
	tcptest.Fields(t, "client", tcptest.One(t, "client", client), map[string]any{"tx_bytes": n, "rx_bytes": 0})
	tcptest.Fields(t, "server", tcptest.One(t, "server", server), map[string]any{"tx_bytes": 0, "rx_bytes": n})
}

// TestRefused connects to a port without a listener.
func TestRefused(t *testing.T) {
	tooltest.OnHooks(t, "state")
	l := tcptest.Listen(t, "127.0.0.1:0")
	rport := tcptest.Port(l.Addr())
	l.Close()
	res := tooltest.JSON(t, Tool, nil, func() { tcptest.Refused(t, rport) })
	r := tcptest.One(t, "refused", res.Where(func(r tooltest.Row) bool { return int(r.Num("rport")) == rport }))
	tcptest.Fields(t, "refused", r, map[string]any{
		"pid": os.Getpid(), "tx_bytes": 0, "rx_bytes": 0, "tcp_state": "SYN_SENT", "error": "ECONNREFUSED",
		"direction": "active", "raddr": "127.0.0.1",
	})
	if r.Has("established_ns") || r.Num("duration_ns") <= 0 {
		t.Errorf("duration is %v, established for %v", r["duration_ns"], r["established_ns"])
	}
}

// TestLateHandshake makes the listener drop the first SYN because its queue is full: the client
// sends another one a second later.
func TestLateHandshake(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var p, first *tcptest.Pair
	res := tooltest.JSON(t, Tool, nil, func() { first, p = tcptest.LateHandshake(t) })
	client, server := p.Rows(res)
	c, s := tcptest.One(t, "client", client), tcptest.One(t, "server", server)
	if ms := (c.Num("duration_ns") - c.Num("established_ns")) / 1e6; ms < 900 || ms > 3500 {
		t.Errorf("the handshake took the client %.1f ms, want one second until the retransmission", ms)
	}
	if ms := (s.Num("duration_ns") - s.Num("established_ns")) / 1e6; ms > 500 {
		t.Errorf("the handshake took the server %.1f ms, want the time without the dropped SYN", ms)
	}
	if c.Num("retransmits") < 1 {
		t.Errorf("retransmits is %v after a retransmitted SYN", c.Num("retransmits"))
	}
	client, _ = first.Rows(res)
	f := tcptest.One(t, "first client", client)
	if ms := (f.Num("duration_ns") - f.Num("established_ns")) / 1e6; ms > 500 {
		t.Errorf("the first handshake took %.1f ms", ms)
	}
}
