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

// TestFull connects to a listener whose queue is full. The function sees this attempt, the state
// change of a new socket does not.
func TestFull(t *testing.T) {
	var late *tcptest.Pair
	res := tooltest.JSON(t, Tool, []string{"--ports"}, func() { _, late = tcptest.LateHandshake(t) })
	h := tcptest.One(t, "late", slices.DeleteFunc(res.Histograms, func(r tooltest.Row) bool {
		return int(r.Object("key").Num("lport")) != late.RPort
	}))
	full, values := res.Summary.Object("counters").Num("full"), h.Num("count")
	// The number is absent if attempts at full queues are missed, not 0. With
	// the function it should be at least 1, but is 0 on 5.10 and 7.2. The cause is not known yet.
	if sees := slices.ContainsFunc(res.Ready.List("hooks"), func(s string) bool { return strings.HasPrefix(s, "handshake:") }); sees != res.Summary.Object("counters").Has("full") || !sees && full > 0 {
		t.Errorf("hooks %v, summary %v", res.Ready, res.Summary)
	}
	if values < 2 || values > 2+full || (full > 0) != (h.Num("max") == 1) {
		t.Errorf("%v attempts at full queues, %v values of two handshakes: %v", full, values, h)
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
	if !strings.Contains(out, "backlog_max = 33\n     value               : count    distribution\n         0 -> 1          : 2 ") {
		t.Errorf("text is %q", out)
	}
}
