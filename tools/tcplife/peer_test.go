package tcplife

import (
	"math"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// peerRow is a line of the peer: PID COMM LADDR LPORT RADDR RPORT TX_KB RX_KB MS.
type peerRow struct {
	pid, lport, rport int
	comm, laddr       string
	tx, rx, ms        float64
}

func parsePeer(t *testing.T, line string) (r peerRow, ok bool) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) != 9 || f[0] == "PID" {
		return r, false
	}
	r.comm, r.laddr = f[1], f[2]
	for i, p := range map[int]*int{0: &r.pid, 3: &r.lport, 5: &r.rport} {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return r, false
		}
		*p = n
	}
	for i, p := range map[int]*float64{6: &r.tx, 7: &r.rx, 8: &r.ms} {
		n, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return r, false
		}
		*p = n
	}
	return r, true
}

// TestPeer compares with tcplife of libbpf-tools. Each of its lines is a row of ours with the same
// addresses and payload, except for the SYN and FIN that it counts, and for rounding to units of
// 1,024. Its time is our established_ns.
func TestPeer(t *testing.T) {
	peer := tooltest.StartPeer(t, "tcplife")
	closed := freePort(t)
	peer.Await(t, " "+strconv.Itoa(closed)+" ", func() {
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(closed))); err == nil {
			c.Close()
		}
	})
	var pairs []*tcptest.Pair
	last := freePort(t)
	refusing := freePort(t)
	res := tooltest.JSON(t, Tool, nil, func() {
		for _, host := range []string{"127.0.0.1", "::1"} {
			l := tcptest.Listen(t, net.JoinHostPort(host, "0"))
			for range 20 {
				p := tcptest.Connect(t, l, host, 0)
				p.Send(p.Client, p.Server, fromClient)
				p.Send(p.Server, p.Client, fromServer)
				p.Fin(p.Client, p.Server)
				pairs = append(pairs, p)
			}
		}
		tcptest.Refused(t, refusing)
		tcptest.Refused(t, last)
		peer.Await(t, " "+strconv.Itoa(last)+" ", nil)
	})
	ours := map[[2]int]tooltest.Row{}
	for _, r := range res.Events {
		ours[[2]int{int(r.Num("lport")), int(r.Num("rport"))}] = r
	}
	theirs := map[[2]int]peerRow{}
	for _, line := range peer.Stop(t) {
		if r, ok := parsePeer(t, line); ok && r.rport != closed {
			theirs[[2]int{r.lport, r.rport}] = r
		}
	}
	compared := 0
	for ends, peer := range theirs {
		r, ok := ours[ends]
		if !ok {
			if ends[1] == refusing || ends[1] == last {
				t.Errorf("line of the peer for a refused connect is missing: %+v", peer)
			}
			continue // of another program
		}
		compared++
		samePeer(t, peer, r)
	}
	for _, p := range pairs {
		for _, ends := range [][2]int{{p.LPort, p.RPort}, {p.RPort, p.LPort}} {
			if _, ok := theirs[ends]; !ok {
				t.Logf("peer has no line for %v", ends)
			}
			if _, ok := ours[ends]; !ok {
				t.Errorf("no row for %v", ends)
			}
		}
	}
	if compared < len(pairs) {
		t.Errorf("compared %d of %d rows", compared, 2*len(pairs)+2)
	}
	t.Logf("compared %d rows", compared)
}

func samePeer(t *testing.T, peer peerRow, r tooltest.Row) {
	t.Helper()
	const flags, rounding, late = 2, 0.005 * 1024, 100
	if peer.laddr != r.Str("laddr") || int(r.Num("pid")) != peer.pid || r.Str("comm") != peer.comm {
		t.Errorf("peer has %+v, we have %v", peer, r)
	}
	for what, bytes := range map[string][2]float64{"sent": {peer.tx, r.Num("tx_bytes")}, "received": {peer.rx, r.Num("rx_bytes")}} {
		if more := bytes[0]*1024 - bytes[1]; more < -rounding || more > flags+rounding {
			t.Errorf("%s: peer has %.2f KB, we have %.0f bytes: %v", what, bytes[0], bytes[1], r)
		}
	}
	est := r.Num("established_ns")
	if est == 0 {
		est = r.Num("duration_ns")
	}
	if math.Abs(peer.ms-est/1e6) > late {
		t.Errorf("peer has %.2f ms, established_ns is %.2f ms: %v", peer.ms, est/1e6, r)
	}
}
