package tcplife

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const (
	fromClient = 5000
	fromServer = 1234567
)

// ending is a way for a connection to end, and what both ends' rows then have.
type ending struct {
	name           string
	end            func(p *pair)
	client, server map[string]any
}

func endings() []ending {
	return []ending{
		{"client closes", func(p *pair) { p.fin(p.client, p.server) },
			map[string]any{"tcp_state": "FIN_WAIT2"}, map[string]any{"tcp_state": "LAST_ACK"}},
		{"server closes", func(p *pair) { p.fin(p.server, p.client) },
			map[string]any{"tcp_state": "LAST_ACK"}, map[string]any{"tcp_state": "FIN_WAIT2"}},
		{"client resets", func(p *pair) { p.reset(p.client, p.server) },
			map[string]any{"tcp_state": "ESTABLISHED"}, map[string]any{"tcp_state": "ESTABLISHED", "error": "ECONNRESET"}},
		{"server resets", func(p *pair) { p.reset(p.server, p.client) },
			map[string]any{"tcp_state": "ESTABLISHED", "error": "ECONNRESET"}, map[string]any{"tcp_state": "ESTABLISHED"}},
		{"client shuts down and is reset", func(p *pair) {
			p.check(p.client.CloseWrite())
			if _, err := p.server.Read(make([]byte, 1)); err == nil {
				p.t.Error("read behind the end")
			}
			p.reset(p.server, p.client)
			// The FIN may have been acknowledged before the RST or not.
		}, map[string]any{"error": "ECONNRESET"}, map[string]any{"tcp_state": "CLOSE_WAIT"}},
	}
}

// TestConnections has every protocol end in every way, with bytes in both directions.
func TestConnections(t *testing.T) {
	type done struct {
		*pair
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
			l := listen(t, net.listen)
			for _, e := range endings() {
				p := connect(t, l, net.host, 0)
				p.send(p.client, p.server, fromClient)
				p.send(p.server, p.client, fromServer)
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
			client, server := d.rows(res)
			c, s := one(t, "client", client), one(t, "server", server)
			for what, r := range map[string]tooltest.Row{"client": c, "server": s} {
				fields(t, what, r, both)
				if est := r.Num("established_ns"); est <= 0 || r.Num("duration_ns") <= est {
					t.Errorf("%s: %v ns, %v of them established", what, r.Num("duration_ns"), est)
				}
			}
			fields(t, "client", c, map[string]any{"tx_bytes": fromClient, "rx_bytes": fromServer, "direction": "active"})
			fields(t, "server", s, map[string]any{"tx_bytes": fromServer, "rx_bytes": fromClient, "direction": "passive"})
			fields(t, "client", c, d.ending.client)
			fields(t, "server", s, d.ending.server)
		})
	}
}

// TestFinWithData closes while data is held back, so that FIN comes in its segment.
func TestFinWithData(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var p *pair
	const n = 700
	res := tooltest.JSON(t, Tool, nil, func() {
		p = connect(t, listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		raw, err := p.client.SyscallConn()
		p.check(err)
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		p.check(err)
		_, err = p.client.Write(make([]byte, n))
		p.check(err)
		p.check(p.client.Close())
		p.read(p.server, n)
		p.check(p.server.Close())
		p.awaitEnd()
	})
	client, server := p.rows(res)
	fields(t, "client", one(t, "client", client), map[string]any{"tx_bytes": n, "rx_bytes": 0})
	fields(t, "server", one(t, "server", server), map[string]any{"tx_bytes": 0, "rx_bytes": n})
}

// TestRefused connects to a port where nobody listens.
func TestRefused(t *testing.T) {
	tooltest.OnHooks(t, "state")
	l := listen(t, "127.0.0.1:0")
	rport := port(l.Addr())
	l.Close()
	res := tooltest.JSON(t, Tool, nil, func() { refused(t, rport) })
	r := one(t, "refused", res.Where(func(r tooltest.Row) bool { return int(r.Num("rport")) == rport }))
	fields(t, "refused", r, map[string]any{
		"pid": os.Getpid(), "tx_bytes": 0, "rx_bytes": 0, "tcp_state": "SYN_SENT", "error": "ECONNREFUSED",
		"direction": "active", "raddr": "127.0.0.1",
	})
	if r.Has("established_ns") || r.Num("duration_ns") <= 0 {
		t.Errorf("it lasted %v and was established for %v", r["duration_ns"], r["established_ns"])
	}
}

// TestLateHandshake lets the first SYN be dropped, as there is no room to wait for
// accept: the kernel sends another one a second later.
func TestLateHandshake(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var p, first *pair
	res := tooltest.JSON(t, Tool, nil, func() { first, p = lateHandshake(t) })
	client, server := p.rows(res)
	c, s := one(t, "client", client), one(t, "server", server)
	if ms := (c.Num("duration_ns") - c.Num("established_ns")) / 1e6; ms < 900 || ms > 3500 {
		t.Errorf("the handshake took the client %.1f ms, want the second of the retransmission", ms)
	}
	if ms := (s.Num("duration_ns") - s.Num("established_ns")) / 1e6; ms > 500 {
		t.Errorf("the handshake took the server %.1f ms, without the SYN that it dropped", ms)
	}
	if c.Num("retransmits") < 1 {
		t.Errorf("the client sent its SYN again, but retransmits is %v", c.Num("retransmits"))
	}
	client, _ = first.rows(res)
	f := one(t, "first client", client)
	if ms := (f.Num("duration_ns") - f.Num("established_ns")) / 1e6; ms > 500 {
		t.Errorf("the first handshake took %.1f ms", ms)
	}
}
