package tcplife

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// childConnects lets another process connect to this one. That closes after it. in
// changes the command, if it is not nil.
func childConnects(t testing.TB, l *net.TCPListener, in func(*exec.Cmd) *exec.Cmd) (child *exec.Cmd, p *pair) {
	t.Helper()
	child = inRole("client", "CORESCOPE_ADDR="+l.Addr().String())
	if in != nil {
		child = in(child)
	}
	p = &pair{t: t, rport: port(l.Addr())}
	go func() {
		s, err := l.AcceptTCP()
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, s)
		p.check(s.Close())
	}()
	if _, err := fmt.Sscan(output(t, child), &p.lport); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd()
	return child, p
}

// childAccepts lets another process accept a connection from this one, and close it first.
func childAccepts(t testing.TB, l *net.TCPListener) (child *exec.Cmd, p *pair) {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child = inRole("server")
	child.ExtraFiles = []*os.File{f}
	c := dial(t, l.Addr().String(), 0)
	output(t, child)
	p = &pair{t: t, client: c, lport: port(c.LocalAddr()), rport: port(l.Addr())}
	p.read(c, int64(len("welcome")))
	p.check(c.Close())
	p.awaitEnd()
	return child, p
}

// TestOwners looks whose each end is, whoever closes first.
func TestOwners(t *testing.T) {
	var client, server *exec.Cmd
	var connected, accepted *pair
	res := tooltest.JSON(t, Tool, nil, func() {
		client, connected = childConnects(t, listen(t, "127.0.0.1:0"), nil)
		server, accepted = childAccepts(t, listen(t, "127.0.0.1:0"))
	})
	c, s := connected.rows(res)
	fields(t, "child that connected", one(t, "client", c), map[string]any{"pid": client.Process.Pid, "comm": comm(), "tx_bytes": 5, "tcp_state": "FIN_WAIT2"})
	fields(t, "server of it", one(t, "server", s), map[string]any{"pid": os.Getpid(), "rx_bytes": 5, "tcp_state": "LAST_ACK"})
	c, s = accepted.rows(res)
	fields(t, "client of it", one(t, "client", c), map[string]any{"pid": os.Getpid(), "rx_bytes": 7, "tcp_state": "LAST_ACK"})
	fields(t, "child that accepted", one(t, "server", s), map[string]any{"pid": server.Process.Pid, "comm": comm(), "tx_bytes": 7, "tcp_state": "FIN_WAIT2"})
}

// without is the tool without a hook.
func without(hook string) *tool.Tool {
	return tool.Define(Tool.Spec, options{}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*tool.Events[row]).Without = []string{hook}
		}
		return src, err
	})
}

// TestOwnerWithoutAccept takes who closes; of a connection that nobody closes, as it is
// reset, nobody is the owner.
func TestOwnerWithoutAccept(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var client, server *exec.Cmd
	var connected, accepted, aborted *pair
	res := tooltest.JSON(t, without("accept"), nil, func() {
		l := listen(t, "127.0.0.1:0")
		client, connected = childConnects(t, l, nil)
		server, accepted = childAccepts(t, l)
		aborted = connect(t, l, "127.0.0.1", 0)
		aborted.reset(aborted.client, aborted.server)
	})
	_, s := connected.rows(res)
	fields(t, "server that closes last", one(t, "server", s), map[string]any{"pid": os.Getpid()})
	_, s = accepted.rows(res)
	fields(t, "server that closes first", one(t, "server", s), map[string]any{"pid": server.Process.Pid})
	_, s = aborted.rows(res)
	fields(t, "server of a connection that is reset", one(t, "server", s), map[string]any{"pid": 0, "comm": "", "uid": 1<<32 - 1, "cgroup_id": 0})
	c, _ := connected.rows(res)
	fields(t, "client", one(t, "client", c), map[string]any{"pid": client.Process.Pid})
}

// neverAccepted resets a connection that waits in the listener's queue.
func neverAccepted(t testing.TB) *pair {
	l := listen(t, "127.0.0.1:0")
	p := &pair{t: t, client: dial(t, l.Addr().String(), 0), rport: port(l.Addr())}
	p.lport = port(p.client.LocalAddr())
	p.check(p.client.SetLinger(0))
	p.check(p.client.Close())
	p.awaitEnd()
	return p
}

// TestNeverAccepted has no owner for such an end, whoever runs when the packets come.
func TestNeverAccepted(t *testing.T) {
	var p *pair
	res := tooltest.JSON(t, Tool, nil, func() { p = neverAccepted(t) })
	client, server := p.rows(res)
	fields(t, "client", one(t, "client", client), map[string]any{"pid": os.Getpid()})
	s := one(t, "server", server)
	fields(t, "server", s, map[string]any{"pid": 0, "comm": "", "uid": 1<<32 - 1})
	// No other sample of the round-trip time has followed that of the handshake.
	if handshake := s.Num("duration_ns") - s.Num("established_ns"); handshake < s.Num("rtt_us")*1000 {
		t.Errorf("the handshake took %.0f ns, less than its round trip of %.0f us", handshake, s.Num("rtt_us"))
	}
	res = tooltest.JSON(t, Tool, []string{"--uid", "0"}, func() { p = neverAccepted(t) })
	client, server = p.rows(res)
	if len(client) != 1 || len(server) != 0 {
		t.Errorf("--uid: %d rows of the client and %d of nobody's end, want 1 and 0", len(client), len(server))
	}
}
