package tcpsubnet

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// send sends numbers of bytes to addresses of this machine, over connections that exist already.
func send(t *testing.T, n map[string]int) func() {
	t.Helper()
	pairs := map[string]*tcptest.Pair{}
	for addr := range n {
		pairs[addr] = tcptest.Connect(t, tcptest.Listen(t, "["+addr+"]:0"), addr, 0)
	}
	return func() {
		for addr, p := range pairs {
			p.Send(p.Client, p.Server, n[addr])
		}
	}
}

// sums adds the bytes of all intervals by subnet.
func sums(res *tooltest.Result) map[string]float64 {
	sums := map[string]float64{}
	for _, r := range res.Rows {
		sums[r.Str("subnet")] += r.Num("tx_bytes")
	}
	return sums
}

// TestSubnets compares sums with the bytes sent to addresses in and outside of subnets.
func TestSubnets(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	load := send(t, map[string]int{"127.0.0.1": 1000, "127.1.0.1": 20_000, "127.1.2.3": 300_000, "::1": 4_000_000})
	for _, c := range []struct {
		args []string
		want map[string]float64
	}{
		{nil, map[string]float64{"127.0.0.1/32": 1000, "0.0.0.0/0": 320_000, "::/0": 4_000_000}},
		{[]string{"127.1.2.9/24,127.0.0.0/8"}, map[string]float64{"127.1.2.0/24": 300_000, "127.0.0.0/8": 21_000, "": 4_000_000}},
		{[]string{"127.1.2.3,::ffff:127.1.0.0/112,::1"}, map[string]float64{"127.1.2.3/32": 300_000, "127.1.0.0/16": 20_000, "::1/128": 4_000_000, "": 1000}},
		{[]string{"-4", "-i", "1h", "127.1.0.0/16"}, map[string]float64{"127.1.0.0/16": 320_000, "": 1000}},
	} {
		got := sums(tooltest.JSON(t, Tool, append(c.args, "-p", me), load))
		for subnet, n := range c.want {
			if got[subnet] != n {
				t.Errorf("%q: %v bytes to %q, want %v", c.args, got[subnet], subnet, n)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%q: sums are %v, want %v", c.args, got, c.want)
		}
	}
}

// TestUnits compares text in each unit.
func TestUnits(t *testing.T) {
	tooltest.AnyAttachType(t)
	load := send(t, map[string]int{"127.0.0.1": 3<<20 + 500})
	for unit, want := range map[string]string{"B": "3146228", "K": "3072.49", "M": "3.00", "b": "25169824", "k": "24579.91", "m": "24.00"} {
		out := tooltest.Text(t, Tool, []string{"-f", unit, "-i", "1h", "--pid", strconv.Itoa(os.Getpid())}, load)
		if out := strings.Join(strings.Fields(out), " "); !strings.Contains(out, "SUBNET SENT 127.0.0.1/32 "+want) {
			t.Errorf("-f %s: %q, want %s", unit, out, want)
		}
	}
}
