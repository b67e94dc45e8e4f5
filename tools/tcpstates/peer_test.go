package tcpstates

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// change is a line of the peer: SKADDR PID COMM LADDR LPORT RADDR RPORT OLD -> NEW MS.
type change struct{ skaddr, laddr, lport, raddr, rport, from, to string }

func parsePeer(line string) (c change, ms float64, ok bool) {
	f := strings.Fields(line)
	if len(f) != 11 || f[8] != "->" || f[0] == "SKADDR" {
		return c, 0, false
	}
	ms, err := strconv.ParseFloat(f[10], 64)
	return change{f[0], f[3], f[4], f[5], f[6], f[7], f[9]}, ms, err == nil
}

// TestPeer compares with tcpstates of libbpf-tools: each of its lines is a row of ours, equally
// often, with the same time in the old state if it has one.
func TestPeer(t *testing.T) {
	peer := tooltest.StartPeer(t, "tcpstates")
	l := tcptest.Listen(t, "127.0.0.1:0")
	first := tcptest.Port(l.Addr())
	l.Close()
	peer.Await(t, " "+strconv.Itoa(first)+" ", func() { tcptest.Refused(t, first) })
	var last int
	var ports []string
	res := tooltest.JSON(t, Tool, nil, func() {
		for range 20 {
			p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
			p.Fin(p.Client, p.Server)
			ports = append(ports, strconv.Itoa(p.RPort))
		}
		l := tcptest.Listen(t, "127.0.0.1:0")
		last = tcptest.Port(l.Addr())
		l.Close()
		tcptest.Refused(t, last)
		peer.Await(t, " "+strconv.Itoa(last)+" ", nil)
	})
	ours := map[change][]float64{}
	for _, r := range res.Events {
		port := func(key string) string { return strconv.Itoa(int(r.Num(key))) }
		c := change{strings.TrimPrefix(r.Str("skaddr"), "0x"), r.Str("laddr"), port("lport"), r.Str("raddr"), port("rport"), r.Str("oldstate"), r.Str("newstate")}
		ours[c] = append(ours[c], r.Num("duration_ns")/1e6)
	}
	compared := 0
	for _, line := range peer.Stop(t) {
		c, ms, ok := parsePeer(line)
		if !ok || !mine(c, ports) {
			continue
		}
		if len(ours[c]) == 0 {
			t.Errorf("line of the peer is missing: %s", line)
			continue
		}
		compared++
		if got := ours[c][0]; ms > 0 && got > 0 && math.Abs(got-ms) > 0.5+ms/10 {
			t.Errorf("%.3f ms, peer has: %s", got, line)
		}
		ours[c] = ours[c][1:]
	}
	if t.Logf("%d lines compared", compared); compared < 150 {
		t.Errorf("peer has %d lines for 20 connections", compared)
	}
}

// mine reports whether a row belongs to the connections of the test.
func mine(c change, ports []string) bool {
	for _, p := range ports {
		if c.lport == p && c.rport != "0" || c.rport == p {
			return true
		}
	}
	return false
}
