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

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// hurry makes n short connections, a few at a time, and returns the port of the listener.
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

// TestMany checks that each of many connections has two rows or is counted as lost, and that no map
// entry remains.
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
		t.Errorf("the map has %d connections of this process, %d are lost", left, lost)
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
	tooltest.CheckTotal(t, res.Summary, client+server, 2*n)
}

// connsLeft returns the number of remaining entries. The kernel removes a connection shortly before
// it reports its close.
func connsLeft(t testing.TB) (n int) {
	t.Helper()
	for over := time.Now().Add(5 * time.Second); ; {
		if n = conns(t); n == 0 || time.Now().After(over) {
			return n
		}
	}
}

// conns counts the map entries whose owner is this process.
func conns(t testing.TB) int {
	t.Helper()
	m := tooltest.OwnMap(t, "conns")
	defer m.Close()
	return owned(t, m)
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

// small is the tool with a map for few connections.
func small(entries uint32) *tool.Tool {
	return tool.Define(Tool.Spec, options{}, func(o *options, env *tool.Env) (tool.Source, error) {
		src, err := build(o, env)
		if err == nil {
			src.(*source.Events[row]).MapEntries = map[string]uint32{"conns": entries}
		}
		return src, err
	})
}

// TestFull checks that each end of a connection that does not fit in the map is counted.
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
			t.Error("no map entry of this process: wrong map")
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
	t.Logf("%d rows, %d lost", rows, lost)
	if rows+lost != 2*n || lost == 0 {
		t.Errorf("%d rows and %d lost, want %d in total", rows, lost, 2*n)
	}
}
