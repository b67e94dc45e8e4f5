package tcpdrop

import (
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// kernelTypes are read only once, because this is slow.
var kernelTypes = sync.OnceValues(btf.LoadKernelSpec)

// reason returns the reason if the kernel has drop reasons, otherwise nil.
func reason(t testing.TB, name string) any {
	t.Helper()
	types, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if types.TypeByName("skb_drop_reason", &enum) != nil {
		return nil
	}
	return name
}

// knowsSocket reports whether the kernel passes the socket of a received packet to the hook (6.11).
func knowsSocket(t testing.TB) bool {
	t.Helper()
	types, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	var def *btf.Typedef
	if err := types.TypeByName("btf_trace_kfree_skb", &def); err != nil {
		t.Fatal(err)
	}
	return len(def.Type.(*btf.Pointer).Target.(*btf.FuncProto).Params) > 4
}

// closedPort returns a port without a listener.
func closedPort(t testing.TB) int {
	l := tcptest.Listen(t, "127.0.0.1:0")
	defer l.Close()
	return tcptest.Port(l.Addr())
}

// to returns the rows of packets to a port with these flags.
func to(res *tooltest.Result, dport int, flags ...string) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool {
		return int(r.Num("dport")) == dport && slices.Equal(r.List("flags"), flags)
	})
}

// TestNoSocket checks one row for a SYN to a port without a listener. It has no owner, although the
// sending task is current when it is dropped.
func TestNoSocket(t *testing.T) {
	for _, c := range []struct {
		host, drops string
		family      int
	}{{"127.0.0.1", "tcp_v4_rcv", 4}, {"::1", "tcp_v6_rcv", 6}} {
		port := closedPort(t)
		res := tooltest.JSON(t, Tool, nil, func() {
			if c, err := net.Dial("tcp", net.JoinHostPort(c.host, strconv.Itoa(port))); err == nil {
				c.Close()
				t.Error("the port has a listener")
			}
		})
		r := tcptest.One(t, c.host, to(res, port, "SYN"))
		tcptest.Fields(t, c.host, r, map[string]any{
			"pid": 0, "comm": "", "uid": 1<<32 - 1, "saddr": c.host, "daddr": c.host, "family": c.family,
			"tcp_state": nil, "reason": reason(t, "NO_SOCKET"), "ack": 0, "netns": ownNetNS(t),
		})
		if names := r.Symbols("stack"); len(names) < 3 || names[0] != c.drops {
			t.Errorf("stack is %q, want %s first", names, c.drops)
		}
	}
}

func ownNetNS(t testing.TB) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Ino)
}

// TestFilter uses a socket that drops received packets: the row has its owner.
func TestFilter(t *testing.T) {
	for _, existing := range []bool{false, true} {
		var p *tcptest.Pair
		l := tcptest.Listen(t, "127.0.0.1:0")
		if existing {
			p = tcptest.Connect(t, l, "127.0.0.1", 0)
		}
		res := tooltest.JSON(t, Tool, nil, func() {
			if !existing {
				p = tcptest.Connect(t, l, "127.0.0.1", 0)
			}
			tcptest.DropReceived(t, p.Server)
			_, err := p.Client.Write([]byte("lost"))
			p.Check(err)
			tcptest.AwaitRetransmits(t, p.Client, 2) // the second one can still be on its way
		})
		rows := to(res, p.RPort, "PSH", "ACK")
		if len(rows) < 2 {
			t.Fatalf("%d rows of segments and retransmissions: %v", len(rows), rows)
		}
		want := map[string]any{"sport": p.LPort, "reason": reason(t, "SOCKET_FILTER"), "seq": rows[0]["seq"]}
		if knowsSocket(t) {
			want["pid"], want["comm"], want["tcp_state"] = os.Getpid(), tcptest.Comm(), "ESTABLISHED"
		}
		for _, r := range rows[:2] {
			tcptest.Fields(t, "packet", r, want)
		}
	}
}

// TestChecksum sends a packet with a wrong checksum.
func TestChecksum(t *testing.T) {
	var l *net.TCPListener
	const sport, seq = 7777, 123456789
	res := tooltest.JSON(t, Tool, nil, func() {
		l = tcptest.Listen(t, "127.0.0.1:0")
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		tcp := make([]byte, 20)
		binary.BigEndian.PutUint16(tcp, sport)
		binary.BigEndian.PutUint16(tcp[2:], uint16(tcptest.Port(l.Addr())))
		binary.BigEndian.PutUint32(tcp[4:], seq)
		tcp[12], tcp[13] = 5<<4, 0x29 // FIN, PSH, URG
		tcp[16] = 0xff
		if err := unix.Sendto(fd, tcp, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
	})
	r := tcptest.One(t, "packet", to(res, tcptest.Port(l.Addr()), "FIN", "PSH", "URG"))
	tcptest.Fields(t, "packet", r, map[string]any{"sport": sport, "seq": seq, "reason": reason(t, "TCP_CSUM"), "tcp_state": nil})
}

// TestFilters counts the rows of a SYN per IP version.
func TestFilters(t *testing.T) {
	me, ns := strconv.Itoa(os.Getpid()), strconv.Itoa(ownNetNS(t))
	for _, c := range []struct {
		args []string
		want [2]int
	}{
		{[]string{"-4"}, [2]int{1, 0}},
		{[]string{"-6", "--pid-netns", me}, [2]int{0, 1}},
		{[]string{"--netns-id", ns}, [2]int{1, 1}},
		{[]string{"--netns_id", "1"}, [2]int{}},
		{[]string{"--pid", me}, [2]int{}},
	} {
		port4, port6 := closedPort(t), closedPort(t)
		res := tooltest.JSON(t, Tool, c.args, func() {
			tcptest.Refused(t, port4)
			if c, err := net.Dial("tcp", "[::1]:"+strconv.Itoa(port6)); err == nil {
				c.Close()
			}
		})
		if got := [2]int{len(to(res, port4, "SYN")), len(to(res, port6, "SYN"))}; got != c.want {
			t.Errorf("%q: %d rows, want %d", c.args, got, c.want)
		}
	}
}

// TestMany checks that each of many packets is shown or counted as lost.
func TestMany(t *testing.T) {
	const n = 500
	port := closedPort(t)
	res := tooltest.JSON(t, Tool, []string{"--no-stack"}, func() {
		for range n {
			tcptest.Refused(t, port)
		}
	})
	rows := to(res, port, "SYN")
	tooltest.CheckTotal(t, res.Summary, len(rows), n)
	if rows[0].Has("stack") {
		t.Error("stack without column stack")
	}
}

// TestText checks text, with the stack below the row, and CSV.
func TestText(t *testing.T) {
	port := closedPort(t)
	load := func() { tcptest.Refused(t, port) }
	lines := strings.Split(tooltest.Text(t, Tool, nil, load), "\n")
	if got, want := strings.Join(strings.Fields(lines[0]), " "), "TIME PID IP SADDR SPORT DADDR DPORT STATE FLAGS REASON"; got != want {
		t.Errorf("header %q, want %q", got, want)
	}
	why, ok := reason(t, "NO_SOCKET").(string)
	if !ok {
		why = "-"
	}
	found := false
	for i, line := range lines {
		if strings.HasSuffix(strings.Join(strings.Fields(line), " "), fmt.Sprintf(" 127.0.0.1 %d - SYN %s", port, why)) {
			found = true
			if !strings.HasPrefix(lines[i+1], "    tcp_v4_rcv+0x") {
				t.Errorf("below %q is %q", line, lines[i+1])
			}
		}
	}
	if !found {
		t.Errorf("no line of the packet in %q", lines)
	}
	rows, err := csv.NewReader(strings.NewReader(tooltest.Text(t, Tool, []string{"--output", "csv", "--columns", "dport,stack"}, load))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(rows, func(r []string) bool {
		return r[0] == strconv.Itoa(port) && strings.HasSuffix(r[1], ";tcp_v4_rcv")
	}) {
		t.Errorf("CSV is %q", rows)
	}
}

// TestReasons checks reasons of subsystems, and numbers without a name.
func TestReasons(t *testing.T) {
	r := reasons{
		core:       map[uint64]string{0: "SKB_NOT_DROPPED_YET", 1: "SKB_CONSUMED", 3: "SKB_DROP_REASON_NO_SOCKET"},
		subsystems: map[uint64]string{0: "SKB_DROP_REASON_SUBSYS_CORE", 2: "SKB_DROP_REASON_SUBSYS_OPENVSWITCH"},
	}
	for reason, want := range map[uint32]string{
		0: "", 1: "CONSUMED", 3: "NO_SOCKET", 99: "99", 2<<16 | 5: "OPENVSWITCH_5", 7<<16 | 1: "458753",
	} {
		if got := r.name(reason); got != want {
			t.Errorf("%#x is %q, want %q", reason, got, want)
		}
	}
}

// TestHealthy closes connections in both orders: there must be no row without --all. Data that was
// received but never read is a loss nevertheless.
func TestHealthy(t *testing.T) {
	const n = 20
	for _, args := range [][]string{nil, {"--all"}} {
		var pairs []*tcptest.Pair
		var unread *tcptest.Pair
		res := tooltest.JSON(t, Tool, args, func() {
			for i := range n {
				p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
				p.Send(p.Client, p.Server, 1000)
				p.Send(p.Server, p.Client, 100_000)
				if i%2 == 0 {
					p.Fin(p.Client, p.Server)
				} else {
					p.Fin(p.Server, p.Client)
				}
				pairs = append(pairs, p)
			}
			unread = abandon(t)
		})
		rows := 0
		for _, p := range pairs {
			client, server := dropsOf(res, p)
			rows += client + server
		}
		left := int(res.Summary.Object("counters").Num("no_loss"))
		if args == nil && rows > 0 || args != nil && left > 0 && rows == 0 {
			t.Errorf("%q: %d rows of %d healthy connections, %d packets without a loss: %v", args, rows, n, left, res.Events)
		}
		if client, server := dropsOf(res, unread); client+server == 0 {
			t.Errorf("%q: no row of a packet that was never read", args)
		}
	}
}

// dropsOf counts the dropped packets of each end.
func dropsOf(res *tooltest.Result, p *tcptest.Pair) (client, server int) {
	for _, r := range res.Events {
		switch [2]int{int(r.Num("sport")), int(r.Num("dport"))} {
		case [2]int{p.LPort, p.RPort}:
			client++
		case [2]int{p.RPort, p.LPort}:
			server++
		}
	}
	return client, server
}

// abandon leaves data unread in a socket that is disconnected with connect(AF_UNSPEC), which purges
// its queue.
func abandon(t *testing.T) *tcptest.Pair {
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	_, err := p.Client.Write(make([]byte, 1000))
	p.Check(err)
	raw, err := p.Server.SyscallConn()
	p.Check(err)
	raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for _, err = unix.Poll(fds, -1); err == unix.EINTR; {
			_, err = unix.Poll(fds, -1)
		}
		p.Check(err)
		var unspec unix.RawSockaddr // AF_UNSPEC
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
		if errno != 0 {
			t.Errorf("disconnect: %v", errno)
		}
	})
	return p
}
