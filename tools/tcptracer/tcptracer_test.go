package tcptracer

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, map[string]func() error{"accept": acceptRole}) }

// kindsOf returns the kinds of rows in their order.
func kindsOf(rows []tooltest.Row) string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Str("kind"))
	}
	return strings.Join(all, " ")
}

// check compares the rows of both ends of a connection.
func check(t *testing.T, what string, p *tcptest.Pair, res *tooltest.Result, client, server string) {
	t.Helper()
	c, s := p.Rows(res)
	if kindsOf(c) != client || kindsOf(s) != server {
		t.Errorf("%s: rows of the client %q and of the server %q, want %q and %q", what, kindsOf(c), kindsOf(s), client, server)
	}
	for _, r := range append(c, s...) {
		tcptest.Fields(t, what, r, map[string]any{"pid": os.Getpid(), "comm": tcptest.Comm(), "uid": 0})
	}
}

// TestConnections ends connections in each way. Each end has one row at its start and one at its end.
func TestConnections(t *testing.T) {
	type done struct {
		*tcptest.Pair
		name   string
		family int
	}
	var all []done
	res := tooltest.JSON(t, Tool, nil, func() {
		for _, net := range []struct {
			listen, host string
			family       int
		}{{"127.0.0.1:0", "127.0.0.1", 4}, {"[::1]:0", "::1", 6}, {"[::]:0", "127.0.0.1", 4}} {
			l := tcptest.Listen(t, net.listen)
			for name, end := range map[string]func(p *tcptest.Pair){
				"client closes": func(p *tcptest.Pair) { p.Fin(p.Client, p.Server) },
				"server closes": func(p *tcptest.Pair) { p.Fin(p.Server, p.Client) },
				"client resets": func(p *tcptest.Pair) { p.Reset(p.Client, p.Server) },
				"server resets": func(p *tcptest.Pair) { p.Reset(p.Server, p.Client) },
				"both shut down": func(p *tcptest.Pair) {
					p.Check(p.Client.CloseWrite())
					p.Check(p.Server.CloseWrite())
					p.Fin(p.Client, p.Server)
				},
			} {
				p := tcptest.Connect(t, l, net.host, 0)
				end(p)
				all = append(all, done{p, net.listen + ", " + name, net.family})
			}
		}
	})
	for _, d := range all {
		check(t, d.name, d.Pair, res, "connect close", "accept close")
		client, _ := d.Rows(res)
		tcptest.Fields(t, d.name, client[0], map[string]any{"family": d.family})
	}
}

// TestExisting closes connections that are older than the run, one of them not accepted yet.
func TestExisting(t *testing.T) {
	l := tcptest.Listen(t, "127.0.0.1:0")
	p := tcptest.Connect(t, l, "127.0.0.1", 0)
	waiting := &tcptest.Pair{T: t, Client: tcptest.Dial(t, l.Addr().String(), 0), RPort: p.RPort}
	waiting.LPort = tcptest.Port(waiting.Client.LocalAddr())
	res := tooltest.JSON(t, Tool, nil, func() {
		p.Fin(p.Client, p.Server)
		var err error
		waiting.Server, err = l.AcceptTCP()
		p.Check(err)
		waiting.Fin(waiting.Client, waiting.Server)
	})
	check(t, "open", p, res, "close", "close")
	check(t, "waiting", waiting, res, "close", "accept close")
}

// TestUnaccepted resets connections before they are accepted: one is accepted then, the other never.
func TestUnaccepted(t *testing.T) {
	var accepted, never *tcptest.Pair
	reset := func(l *net.TCPListener) *tcptest.Pair {
		p := &tcptest.Pair{T: t, Client: tcptest.Dial(t, l.Addr().String(), 0), RPort: tcptest.Port(l.Addr())}
		p.LPort = tcptest.Port(p.Client.LocalAddr())
		p.Check(p.Client.SetLinger(0))
		p.Check(p.Client.Close())
		p.AwaitEnd()
		return p
	}
	res := tooltest.JSON(t, Tool, nil, func() {
		l, other := tcptest.Listen(t, "127.0.0.1:0"), tcptest.Listen(t, "127.0.0.1:0")
		accepted, never = reset(l), reset(other)
		s, err := l.AcceptTCP()
		accepted.Check(err)
		accepted.Check(s.Close())
		accepted.Check(other.Close())
	})
	check(t, "accepted", accepted, res, "connect close", "accept close")
	check(t, "never accepted", never, res, "connect close", "")
}

// acceptRole accepts a connection from the descriptor 3, and closes it.
func acceptRole() error {
	fd, _, err := unix.Accept(3)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// TestOwner accepts in another process than the one that listens.
func TestOwner(t *testing.T) {
	l := tcptest.Listen(t, "127.0.0.1:0")
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := &tcptest.Pair{T: t, RPort: tcptest.Port(l.Addr())}
	child := tcptest.InRole("accept")
	child.ExtraFiles = []*os.File{file}
	res := tooltest.JSON(t, Tool, nil, func() {
		p.Client = tcptest.Dial(t, l.Addr().String(), 0)
		p.LPort = tcptest.Port(p.Client.LocalAddr())
		// The child inherits a listener in non-blocking mode.
		p.Check(unix.SetNonblock(int(file.Fd()), false))
		tcptest.Output(t, child)
		p.Read(p.Client, 0)
		p.Check(p.Client.Close())
		p.AwaitEnd()
	})
	_, server := p.Rows(res)
	if kindsOf(server) != "accept close" {
		t.Fatalf("rows of the server: %v", server)
	}
	for _, r := range server {
		tcptest.Fields(t, "server", r, map[string]any{"pid": child.Process.Pid})
	}
}

// TestFilters counts the rows of one connection per IP version, with the ends that the filters select.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args []string
		want [2]int
	}{
		{[]string{"-4", "-p", me}, [2]int{4, 0}},
		{[]string{"-6", "-u", "0", "-N", strconv.FormatUint(st.Ino, 10)}, [2]int{0, 4}},
		{[]string{"--netns", "1"}, [2]int{}},
		{[]string{"--comm", "nobody"}, [2]int{}},
	} {
		var got [2]int
		var pairs [2]*tcptest.Pair
		res := tooltest.JSON(t, Tool, c.args, func() {
			for i, addr := range []string{"127.0.0.1", "::1"} {
				p := tcptest.Connect(t, tcptest.Listen(t, net.JoinHostPort(addr, "0")), addr, 0)
				p.Fin(p.Client, p.Server)
				pairs[i] = p
			}
		})
		for i, p := range pairs {
			client, server := p.Rows(res)
			got[i] = len(client) + len(server)
		}
		if got != c.want {
			t.Errorf("%q: %d rows, want %d", c.args, got, c.want)
		}
	}
}

// TestText checks the columns of text.
func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	var p *tcptest.Pair
	out := tooltest.Text(t, Tool, []string{"-t", "-U"}, func() {
		p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		p.Fin(p.Client, p.Server)
	})
	out = strings.Join(strings.Fields(out), " ")
	if want := "TIME(s) UID T PID COMM IP SADDR DADDR SPORT DPORT"; !strings.HasPrefix(out, want) {
		t.Errorf("%q does not begin with %q", out, want)
	}
	for _, letter := range []string{"C", "X"} {
		if want := fmt.Sprintf(" 0 %s %d %s 4 127.0.0.1 127.0.0.1 %d %d", letter, os.Getpid(), tcptest.Comm(), p.LPort, p.RPort); !strings.Contains(out, want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}
