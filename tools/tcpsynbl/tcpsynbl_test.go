package tcpsynbl

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// listen returns a listener whose queue has this limit, and its port.
func listen(t *testing.T, addr string, limit int) (*net.TCPListener, string) {
	t.Helper()
	l := tcptest.Listen(t, addr)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), limit) })
	if err != nil {
		t.Fatal(err)
	}
	return l, strconv.Itoa(tcptest.Port(l.Addr()))
}

// fill connects n times. The connections wait for accept. It returns when the kernel has added all to
// the queue, which can be after the client's end is connected.
func fill(t *testing.T, host, port string, n int) {
	t.Helper()
	for range n {
		want := queue(t, port) + 1
		tcptest.Dial(t, net.JoinHostPort(host, port), 0)
		for queue(t, port) < want && t.Context().Err() == nil {
		}
	}
}

// queue returns the number of connections that wait for accept, according to the kernel.
func queue(t *testing.T, port string) uint64 {
	t.Helper()
	n, _ := strconv.Atoi(port)
	local := fmt.Sprintf(":%04X", n)
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); strings.HasSuffix(f[1], local) && f[3] == "0A" {
				_, received, _ := strings.Cut(f[4], ":")
				backlog, _ := strconv.ParseUint(received, 16, 32)
				return backlog
			}
		}
	}
	t.Fatalf("no listener on port %s", port)
	return 0
}

// buckets returns the values with their counts.
func buckets(h tooltest.Row) (values []string) {
	list, _ := h["buckets"].([]any)
	for _, b := range list {
		bucket := tooltest.Row(b.(map[string]any))
		values = append(values, fmt.Sprint(bucket.Num("lo"), ":", bucket.Num("count")))
	}
	return values
}

// TestBacklog fills the queues of two listeners: each connection finds those before it.
func TestBacklog(t *testing.T) {
	for _, c := range []struct{ addr, host string }{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"}} {
		_, short := listen(t, c.addr, 7)
		l, long := listen(t, c.addr, 12)
		res := tooltest.JSON(t, Tool, []string{"-P", short + "," + long, "--ports"}, func() {
			fill(t, c.host, short, 5)
			fill(t, c.host, long, 3)
			if _, err := l.Accept(); err != nil {
				t.Error(err)
			}
			fill(t, c.host, long, 1)
		})
		for port, want := range map[string]struct {
			limit  float64
			values []string
		}{short: {7, []string{"0:1", "1:1", "2:1", "3:1", "4:1"}}, long: {12, []string{"0:1", "1:1", "2:2"}}} {
			rows := res.Histograms
			h := tcptest.One(t, port, slices.DeleteFunc(slices.Clone(rows), func(r tooltest.Row) bool {
				return strconv.Itoa(int(r.Object("key").Num("lport"))) != port
			}))
			if h.Object("key").Num("backlog_max") != want.limit || !slices.Equal(buckets(h), want.values) || h.Str("unit") != "value" {
				t.Errorf("%s to %s: %v, want limit %v and values %v", c.host, c.addr, h, want.limit, want.values)
			}
		}
		if len(res.Histograms) != 2 {
			t.Errorf("histograms: %v", res.Histograms)
		}
	}
}

// TestFull ends a handshake while the queue is full. With TCP_DEFER_ACCEPT, the kernel ends it when
// the client sends data: a handshake can begin before others fill the queue. (A SYN that finds the
// queue full is dropped by tcp_conn_request. Before 5.11, a queue of requests as long as the limit
// causes SYN cookies, with which the handshake is not deferred.) The function sees the attempt, the
// state change of a new socket does not.
func TestFull(t *testing.T) {
	const limit = 2
	l, port := listen(t, "127.0.0.1:0", limit)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 60) })
	if err != nil {
		t.Fatal(err)
	}
	begin := func() net.Conn { return tcptest.Dial(t, net.JoinHostPort("127.0.0.1", port), 0) }
	end := func(c net.Conn) {
		if _, err := c.Write([]byte("data")); err != nil {
			t.Fatal(err)
		}
	}
	res := tooltest.JSON(t, Tool, []string{"-P", port}, func() {
		late := begin()
		for n := range uint64(limit + 1) {
			end(begin())
			for queue(t, port) <= n && t.Context().Err() == nil {
			}
		}
		before := tcptest.Overflows(t)
		end(late)
		for tcptest.Overflows(t) == before && t.Context().Err() == nil {
		}
		for range limit + 2 { // the client repeats its data
			if _, err := l.Accept(); err != nil {
				t.Error(err)
			}
		}
	})
	h := tcptest.One(t, "full", res.Histograms)
	counters := res.Summary.Object("counters")
	full, want := counters.Num("full"), []string{"0:1", "1:1", "2:1"}
	sees := slices.ContainsFunc(res.Ready.List("hooks"), func(s string) bool { return strings.HasPrefix(s, "handshake:") })
	if sees { // at least one attempt
		want = append(want, fmt.Sprint("3:", max(1, full)))
	}
	// The late connection enters the queue when one or more have been accepted.
	var again bool
	for i := range limit + 1 {
		late := slices.Clone(want)
		late[i] = fmt.Sprint(i, ":2")
		again = again || slices.Equal(buckets(h), late)
	}
	if counters.Has("full") != sees || !again {
		t.Errorf("hooks %v, summary %v: values %v, want %v and one more", res.Ready, res.Summary, buckets(h), want)
	}
}

// TestFamilies counts connections by family, and not those of another port or namespace.
func TestFamilies(t *testing.T) {
	tooltest.AnyAttachType(t)
	_, v4 := listen(t, "127.0.0.1:0", 20)
	_, v6 := listen(t, "[::1]:0", 20)
	for _, c := range []struct {
		args []string
		want float64
	}{{[]string{"-4"}, 2}, {[]string{"-6"}, 3}, {nil, 5}, {[]string{"--netns-id", "1"}, 0}} {
		res := tooltest.JSON(t, Tool, append(c.args, "-P", v4+","+v6), func() {
			fill(t, "127.0.0.1", v4, 2)
			fill(t, "::1", v6, 3)
		})
		var n float64
		for _, h := range res.Histograms {
			n += h.Num("count")
		}
		if n != c.want {
			t.Errorf("%q: %v values, want %v", c.args, n, c.want)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	_, port := listen(t, "127.0.0.1:0", 33)
	out := tooltest.Text(t, Tool, []string{"-P", port}, func() { fill(t, "127.0.0.1", port, 3) })
	if !strings.Contains(out, "backlog_max = 33\n     backlog             : count    distribution\n         0 -> 1          : 2 ") {
		t.Errorf("text is %q", out)
	}
}
