package tcprtt

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// info returns what the kernel knows about the client's end.
func info(p *tcptest.Pair) (info *unix.TCPInfo) {
	raw, err := p.Client.SyscallConn()
	p.Check(err)
	p.Check(raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}))
	p.Check(err)
	return info
}

// pair connects to addr. The client has measured a round-trip time, and all its data is
// acknowledged.
func pair(t *testing.T, addr string) *tcptest.Pair {
	t.Helper()
	p := tcptest.Connect(t, tcptest.Listen(t, addr), strings.Trim(addr[:strings.LastIndex(addr, ":")], "[]"), 0)
	p.Send(p.Client, p.Server, 1)
	for info(p).Unacked > 0 && t.Context().Err() == nil {
	}
	return p
}

// feed sends n segments to the client, which does not send data. So the client's round-trip time
// does not change, and each segment is a value.
func feed(p *tcptest.Pair, n int) {
	for range n {
		p.Send(p.Server, p.Client, 1)
	}
}

// TestValues compares the values with the round-trip time in TCP_INFO, and their number with the
// segments that the kernel has counted.
func TestValues(t *testing.T) {
	for addr, family := range map[string]string{"127.0.0.1:0": "-4", "[::1]:0": "-6"} {
		p := pair(t, addr)
		var before, after *unix.TCPInfo
		res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(p.LPort), family}, func() {
			before = info(p)
			feed(p, 50)
			after = info(p)
		})
		h := tcptest.One(t, addr, res.Histograms)
		rtt := float64(before.Rtt)
		if before.Rtt != after.Rtt || h.Num("min") != rtt || h.Num("max") != rtt || h.Str("unit") != "usecs" {
			t.Errorf("%s: round-trip time is %d us before and %d us after: %v", addr, before.Rtt, after.Rtt, h)
		}
		if n := after.Segs_in - before.Segs_in; h.Num("count") != 50 || n != 50 {
			t.Errorf("%s: %v values of %d segments, want 50", addr, h.Num("count"), n)
		}
	}
}

// TestSelected checks the options that select connections, each with the number of values of two
// connections to different addresses.
func TestSelected(t *testing.T) {
	tooltest.AnyAttachType(t)
	one, other := pair(t, "127.0.0.1:0"), pair(t, "127.0.0.2:0")
	ports := fmt.Sprintf("%d,%d", one.LPort, other.LPort)
	for _, c := range []struct {
		args []string
		want float64
	}{
		{nil, 30},
		{[]string{"-A", "127.0.0.2"}, 20},
		{[]string{"-A", "::ffff:127.0.0.1"}, 10},
		{[]string{"-a", "127.0.0.2"}, 0},
		{[]string{"-P", strconv.Itoa(other.RPort)}, 20},
		{[]string{"--netns-id", "1"}, 0},
		{[]string{"-6"}, 0},
	} {
		res := tooltest.JSON(t, Tool, append(c.args, "-p", ports), func() {
			feed(one, 10)
			feed(other, 20)
		})
		if n := tcptest.One(t, "all", res.Histograms).Num("count"); n != c.want {
			t.Errorf("%q: %v values, want %v", c.args, n, c.want)
		}
	}
}

// TestKeys groups by addresses, in text and JSON.
func TestKeys(t *testing.T) {
	tooltest.AnyAttachType(t)
	one, other := pair(t, "127.0.0.1:0"), pair(t, "127.0.0.2:0")
	args := []string{"-p", fmt.Sprintf("%d,%d", one.LPort, other.LPort), "-B", "-b", "-m", "-e"}
	load := func() {
		feed(one, 10)
		feed(other, 20)
	}
	got := map[string]float64{}
	for _, h := range tooltest.JSON(t, Tool, args, load).Histograms {
		got[h.Object("key").Str("laddr")+" "+h.Object("key").Str("raddr")] = h.Num("count")
	}
	if len(got) != 2 || got["127.0.0.1 127.0.0.1"] != 10 || got["127.0.0.1 127.0.0.2"] != 20 {
		t.Errorf("values by addresses: %v", got)
	}
	if out := tooltest.Text(t, Tool, args, load); !strings.Contains(out, "raddr = 127.0.0.2\n     msecs ") {
		t.Errorf("text is %q", out)
	}
}
