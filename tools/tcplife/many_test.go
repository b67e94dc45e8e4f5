package tcplife

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// hurry makes n connections that end at once, a few at a time, and returns the
// listener's port.
func hurry(t testing.TB, n int) int {
	t.Helper()
	l := tcptest.Listen(t, "127.0.0.1:0")
	var served, done sync.WaitGroup
	next := make(chan struct{})
	for range 4 {
		served.Go(func() {
			for {
				s, err := l.AcceptTCP()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			}
		})
		done.Go(func() {
			for range next {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					continue
				}
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("read something")
				}
				c.Close()
			}
		})
	}
	for range n {
		next <- struct{}{}
	}
	close(next)
	done.Wait()
	rport := tcptest.Port(l.Addr())
	if err := tcptest.AwaitEnd(t.Context(), rport); err != nil {
		t.Error(err)
	}
	l.Close()
	served.Wait()
	return rport
}

// TestMany has two rows for each of many connections, or tells of those it has lost,
// and keeps nothing of them.
func TestMany(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 300
	}
	var rport, left int
	res := tooltest.JSON(t, Tool, nil, func() {
		rport = hurry(t, n)
		left = connsLeft(t)
	})
	if lost := int(res.Summary.Num("lost")); left > lost {
		t.Errorf("the map still has %d connections of this process, %d are lost", left, lost)
	}
	var client, server int
	for _, r := range res.Events {
		switch {
		case int(r.Num("rport")) == rport:
			client++
		case int(r.Num("lport")) == rport:
			server++
		default:
			continue
		}
		if int(r.Num("pid")) != os.Getpid() {
			t.Errorf("owner is %v: %v", r["pid"], r)
		}
	}
	tooltest.Accounts(t, res.Summary, client+server, 2*n)
}

// connsLeft is how many entries stay. A connection is not among the kernel's any more a
// little before it is told to be closed.
func connsLeft(t testing.TB) (n int) {
	t.Helper()
	for over := time.Now().Add(5 * time.Second); ; {
		if n = conns(t); n == 0 || time.Now().After(over) {
			return n
		}
	}
}

// conns counts the entries of the map whose owner is this process.
func conns(t testing.TB) (n int) {
	t.Helper()
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // gone since
		}
		if info, err := m.Info(); err == nil && info.Name == "conns" {
			n += owned(t, m)
		}
		m.Close()
	}
}

func owned(t testing.TB, m *ebpf.Map) (n int) {
	t.Helper()
	var key uint64
	var value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		if pid := binary.NativeEndian.Uint32(value[16:]); int(pid) == os.Getpid() { // owner.pid
			n++
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		t.Error(err)
	}
	return n
}

// small is the tool with room for few connections at a time.
func small(entries uint32) *tool.Tool {
	return tool.Define(Tool.Spec, options{}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*tool.Events[row]).MapEntries = map[string]uint32{"conns": entries}
		}
		return src, err
	})
}

// TestFull tells of each end of a connection that there is no room for.
func TestFull(t *testing.T) {
	tooltest.OnHooks(t, "state")
	const n = 100
	var pairs [n]*tcptest.Pair
	res := tooltest.JSON(t, small(n), nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		for i := range pairs {
			pairs[i] = tcptest.Connect(t, l, "127.0.0.1", 0)
		}
		if open := conns(t); open == 0 {
			t.Error("the map has no connection of this process: it cannot be the right one")
		}
		for _, p := range pairs {
			p.Close(p.Client, p.Server)
		}
		if err := tcptest.AwaitEnd(t.Context(), tcptest.Port(l.Addr())); err != nil {
			t.Error(err)
		}
	})
	rows := 0
	for _, p := range pairs {
		client, server := p.Rows(res)
		rows += len(client) + len(server)
	}
	lost := int(res.Summary.Object("reasons").Num("map_full"))
	t.Logf("%d rows, %d without room", rows, lost)
	if rows+lost != 2*n || lost == 0 {
		t.Errorf("%d rows and %d without room, want %d in all", rows, lost, 2*n)
	}
}
