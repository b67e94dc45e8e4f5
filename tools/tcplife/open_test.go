package tcplife

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestOpen lists connections that are open at the start or the end, in all combinations: old and
// new, closed and still open, and one that is not accepted.
func TestOpen(t *testing.T) {
	l := tcptest.Listen(t, "127.0.0.1:0")
	closes, stays := tcptest.Connect(t, l, "127.0.0.1", 0), tcptest.Connect(t, l, "127.0.0.1", 0)
	closes.Send(closes.Client, closes.Server, fromClient)
	waits := &tcptest.Pair{T: t, Client: tcptest.Dial(t, l.Addr().String(), 0), RPort: tcptest.Port(l.Addr())}
	waits.LPort = tcptest.Port(waits.Client.LocalAddr())
	var fresh *tcptest.Pair
	res := tooltest.JSON(t, Tool, []string{"--existing", "--active"}, func() {
		closes.Send(closes.Server, closes.Client, fromServer)
		closes.Fin(closes.Server, closes.Client)
		fresh = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		fresh.Send(fresh.Client, fresh.Server, fromClient)
	})
	ours := map[string]any{"pid": os.Getpid(), "partial": true}
	nobody := map[string]any{"pid": 0, "comm": "", "partial": true}
	for _, c := range []struct {
		name           string
		pair           *tcptest.Pair
		states         []string
		client, server map[string]any
		tx, rx         []int
	}{
		{"closes", closes, []string{"existing", "closed"}, ours, ours, []int{fromClient, fromClient}, []int{0, fromServer}},
		{"stays", stays, []string{"existing", "open"}, ours, ours, []int{0, 0}, []int{0, 0}},
		{"waits", waits, []string{"existing", "open"}, ours, nobody, []int{0, 0}, []int{0, 0}},
		{"fresh", fresh, []string{"open"}, map[string]any{"pid": os.Getpid(), "partial": false}, map[string]any{"direction": "passive"}, []int{fromClient}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := c.pair.Rows(res)
			if len(client) != len(c.states) || len(server) != len(c.states) {
				t.Fatalf("%d and %d rows, want %d: %v %v", len(client), len(server), len(c.states), client, server)
			}
			for i, state := range c.states {
				tcptest.Fields(t, "client "+state, client[i], map[string]any{"state": state, "tx_bytes": c.tx[i], "rx_bytes": c.rx[i]})
				tcptest.Fields(t, "server "+state, server[i], map[string]any{"state": state, "tx_bytes": c.rx[i], "rx_bytes": c.tx[i]})
				tcptest.Fields(t, "client "+state, client[i], c.client)
				tcptest.Fields(t, "server "+state, server[i], c.server)
				if partial := client[i]["partial"] == true; partial == client[i].Has("duration_ns") || partial == client[i].Has("direction") {
					t.Errorf("partial is %v: %v", partial, client[i])
				}
			}
		})
	}
}

// TestNotAsked checks that connections open at the start are not shown by default.
func TestNotAsked(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	res := tooltest.JSON(t, Tool, nil, func() { p.Fin(p.Client, p.Server) })
	if client, server := p.Rows(res); len(client)+len(server) > 0 {
		t.Errorf("rows of an older connection: %v %v", client, server)
	}
}

// TestManyOpen lists more connections than one read of an iterator returns, each once.
func TestManyOpen(t *testing.T) {
	tooltest.AnyAttachType(t)
	const n, closing = 500, 20
	l := tcptest.Listen(t, "127.0.0.1:0")
	pairs := make([]*tcptest.Pair, n)
	for i := range pairs {
		pairs[i] = tcptest.Connect(t, l, "127.0.0.1", 0)
	}
	res := tooltest.JSON(t, Tool, []string{"--existing", "--active"}, func() {
		for _, p := range pairs[:closing] {
			p.Fin(p.Client, p.Server)
		}
	})
	byPort := map[[2]int][]tooltest.Row{}
	for _, r := range res.Events {
		ends := [2]int{int(r.Num("lport")), int(r.Num("rport"))}
		byPort[ends] = append(byPort[ends], r)
	}
	for i, p := range pairs {
		last := "open"
		if i < closing {
			last = "closed"
		}
		for _, ends := range [][2]int{{p.LPort, p.RPort}, {p.RPort, p.LPort}} {
			rows := byPort[ends]
			if len(rows) != 2 || rows[0].Str("state") != "existing" || rows[1].Str("state") != last {
				t.Fatalf("rows of connection %d: %v, want existing and %s", i, rows, last)
			}
		}
	}
}

// TestOpenOrGone checks that a connection whose close was not observed is not listed as open, nor
// another one whose socket has the same address, which can also be that of a closed listener.
func TestOpenOrGone(t *testing.T) {
	tooltest.AnyAttachType(t)
	const n = 50
	l := tcptest.Listen(t, "127.0.0.1:0")
	var old, fresh [n]*tcptest.Pair
	var listeners [n]*net.TCPListener
	for i := range old {
		old[i] = tcptest.Connect(t, l, "127.0.0.1", 0)
		listeners[i] = tcptest.Listen(t, "127.0.0.1:0")
	}
	res := tooltest.JSON(t, without("state"), []string{"--existing", "--active"}, func() {
		for _, l := range listeners {
			l.Close()
		}
		for _, p := range old {
			p.Close(p.Client, p.Server)
		}
		if err := tcptest.AwaitEnd(t.Context(), tcptest.Port(l.Addr())); err != nil {
			t.Error(err)
		}
		for i := range fresh {
			fresh[i] = tcptest.Connect(t, l, "127.0.0.1", 0)
		}
	})
	for i := range n {
		client, server := old[i].Rows(res)
		for _, r := range [][]tooltest.Row{client, server} {
			tcptest.Fields(t, "old", tcptest.One(t, "old", r), map[string]any{"state": "existing"})
		}
		if client, server := fresh[i].Rows(res); len(client)+len(server) > 0 {
			t.Errorf("rows of a connection whose start was not observed: %v %v", client, server)
		}
	}
}

// TestOpenOfHolder finds a connection with two holders by each of them.
func TestOpenOfHolder(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	f, err := p.Client.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child := exec.Command("/bin/cat")
	child.ExtraFiles = []*os.File{f}
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for what, pid := range map[string]int{"the one": os.Getpid(), "the other": child.Process.Pid} {
		res := tooltest.JSON(t, Tool, []string{"--existing", "-p", strconv.Itoa(pid)}, func() {})
		client, _ := p.Rows(res)
		tcptest.Fields(t, what, tcptest.One(t, what, client), map[string]any{"pid": pid, "state": "existing"})
	}
	if err := errors.Join(hold.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
}
