package tcplife

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// childConnects connects from another process, which closes after this one. in modifies the
// command, if it is not nil.
func childConnects(t testing.TB, l *net.TCPListener, in func(*exec.Cmd) *exec.Cmd) (child *exec.Cmd, p *tcptest.Pair) {
	t.Helper()
	child = tcptest.InRole("client", "CORESCOPE_ADDR="+l.Addr().String())
	if in != nil {
		child = in(child)
	}
	p = &tcptest.Pair{T: t, RPort: tcptest.Port(l.Addr())}
	go func() {
		s, err := l.AcceptTCP()
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, s)
		p.Check(s.Close())
	}()
	if _, err := fmt.Sscan(tcptest.Output(t, child), &p.LPort); err != nil {
		t.Fatal(err)
	}
	p.AwaitEnd()
	return child, p
}

// childAccepts accepts in another process, which closes first.
func childAccepts(t testing.TB, l *net.TCPListener) (child *exec.Cmd, p *tcptest.Pair) {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child = tcptest.InRole("server")
	child.ExtraFiles = []*os.File{f}
	c := tcptest.Dial(t, l.Addr().String(), 0)
	tcptest.Output(t, child)
	p = &tcptest.Pair{T: t, Client: c, LPort: tcptest.Port(c.LocalAddr()), RPort: tcptest.Port(l.Addr())}
	p.Read(c, int64(len("welcome")))
	p.Check(c.Close())
	p.AwaitEnd()
	return child, p
}

// TestOwners checks the owner of each end, for each order of closing.
func TestOwners(t *testing.T) {
	var client, server *exec.Cmd
	var connected, accepted *tcptest.Pair
	res := tooltest.JSON(t, Tool, nil, func() {
		client, connected = childConnects(t, tcptest.Listen(t, "127.0.0.1:0"), nil)
		server, accepted = childAccepts(t, tcptest.Listen(t, "127.0.0.1:0"))
	})
	c, s := connected.Rows(res)
	tcptest.Fields(t, "child that connected", tcptest.One(t, "client", c), map[string]any{"pid": client.Process.Pid, "comm": tcptest.Comm(), "tx_bytes": 5, "tcp_state": "FIN_WAIT2"})
	tcptest.Fields(t, "server of it", tcptest.One(t, "server", s), map[string]any{"pid": os.Getpid(), "rx_bytes": 5, "tcp_state": "LAST_ACK"})
	c, s = accepted.Rows(res)
	tcptest.Fields(t, "client of it", tcptest.One(t, "client", c), map[string]any{"pid": os.Getpid(), "rx_bytes": 7, "tcp_state": "LAST_ACK"})
	tcptest.Fields(t, "child that accepted", tcptest.One(t, "server", s), map[string]any{"pid": server.Process.Pid, "comm": tcptest.Comm(), "tx_bytes": 7, "tcp_state": "FIN_WAIT2"})
}

// without is the tool without a hook.
func without(hook string) *tool.Tool {
	return tool.Define(Tool.Spec, options{}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*source.Events[row]).Without = []string{hook}
		}
		return src, err
	})
}

// TestOwnerWithoutAccept checks that the closing task is the owner; a connection that is reset
// without close has none.
func TestOwnerWithoutAccept(t *testing.T) {
	tooltest.OnHooks(t, "state")
	var client, server *exec.Cmd
	var connected, accepted, aborted *tcptest.Pair
	res := tooltest.JSON(t, without("accept"), nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		client, connected = childConnects(t, l, nil)
		server, accepted = childAccepts(t, l)
		aborted = tcptest.Connect(t, l, "127.0.0.1", 0)
		aborted.Reset(aborted.Client, aborted.Server)
	})
	_, s := connected.Rows(res)
	tcptest.Fields(t, "server that closes last", tcptest.One(t, "server", s), map[string]any{"pid": os.Getpid()})
	_, s = accepted.Rows(res)
	tcptest.Fields(t, "server that closes first", tcptest.One(t, "server", s), map[string]any{"pid": server.Process.Pid})
	_, s = aborted.Rows(res)
	tcptest.Fields(t, "server of a connection that is reset", tcptest.One(t, "server", s), map[string]any{"pid": 0, "comm": "", "uid": 1<<32 - 1, "cgroup_id": 0})
	c, _ := connected.Rows(res)
	tcptest.Fields(t, "client", tcptest.One(t, "client", c), map[string]any{"pid": client.Process.Pid})
}

// neverAccepted resets a connection in the accept queue.
func neverAccepted(t testing.TB) *tcptest.Pair {
	l := tcptest.Listen(t, "127.0.0.1:0")
	p := &tcptest.Pair{T: t, Client: tcptest.Dial(t, l.Addr().String(), 0), RPort: tcptest.Port(l.Addr())}
	p.LPort = tcptest.Port(p.Client.LocalAddr())
	p.Check(p.Client.SetLinger(0))
	p.Check(p.Client.Close())
	p.AwaitEnd()
	return p
}

// TestNeverAccepted checks that such an end has no owner, whichever task is current when packets
// arrive.
func TestNeverAccepted(t *testing.T) {
	var p *tcptest.Pair
	res := tooltest.JSON(t, Tool, nil, func() { p = neverAccepted(t) })
	client, server := p.Rows(res)
	tcptest.Fields(t, "client", tcptest.One(t, "client", client), map[string]any{"pid": os.Getpid()})
	s := tcptest.One(t, "server", server)
	tcptest.Fields(t, "server", s, map[string]any{"pid": 0, "comm": "", "uid": 1<<32 - 1})
	// The handshake is the only sample of the round-trip time.
	if handshake := s.Num("duration_ns") - s.Num("established_ns"); handshake < s.Num("rtt_us")*1000 {
		t.Errorf("the handshake took %.0f ns, less than its round trip of %.0f us", handshake, s.Num("rtt_us"))
	}
	res = tooltest.JSON(t, Tool, []string{"--uid", "0"}, func() { p = neverAccepted(t) })
	client, server = p.Rows(res)
	if len(client) != 1 || len(server) != 0 {
		t.Errorf("--uid: %d rows of the client and %d without an owner, want 1 and 0", len(client), len(server))
	}
}
