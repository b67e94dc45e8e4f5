package packetsnoop

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// packet is an Enhanced Packet Block, with the interface it refers to.
type packet struct {
	device, description string
	link                uint16
	at                  uint64
	data                []byte
	length              uint32
	direction           uint32
	comment             string
}

// capture is what a pcapng file contains.
type capture struct {
	packets  []packet
	received uint64 // in the statistics
	dropped  uint64
}

// readCapture reads a file as draft-ietf-opsawg-pcapng describes it, and checks its structure. It
// does not use the code of the tool.
func readCapture(t testing.TB, b []byte) (c capture) {
	t.Helper()
	u32 := binary.NativeEndian.Uint32
	options := func(b []byte) map[uint16][]byte {
		all := map[uint16][]byte{}
		for len(b) >= 4 {
			code, n := binary.NativeEndian.Uint16(b), int(binary.NativeEndian.Uint16(b[2:]))
			if code == 0 {
				break
			}
			all[code] = b[4 : 4+n]
			b = b[4+(n+3)&^3:]
		}
		return all
	}
	var devices []packet
	for first := true; len(b) > 0; first = false {
		kind, n := u32(b), int(u32(b[4:]))
		if n%4 != 0 || n > len(b) || u32(b[n-4:]) != uint32(n) {
			t.Fatalf("block of type %d has length %d, and %d at its end", kind, n, u32(b[n-4:]))
		}
		body := b[8 : n-4]
		b = b[n:]
		switch {
		case first && (kind != 0x0a0d0d0a || u32(body) != 0x1a2b3c4d):
			t.Fatalf("the file starts with block %x", kind)
		case kind == 1:
			o := options(body[8:])
			if !bytes.Equal(o[9], []byte{9}) {
				t.Errorf("resolution of time is %v, want nanoseconds", o[9])
			}
			devices = append(devices, packet{device: string(o[2]), description: string(o[3]), link: binary.NativeEndian.Uint16(body)})
		case kind == 6:
			p := devices[u32(body)]
			captured := u32(body[12:])
			p.at, p.length = uint64(u32(body[4:]))<<32|uint64(u32(body[8:])), u32(body[16:])
			p.data = body[20 : 20+captured]
			o := options(body[20+(captured+3)&^3:])
			p.direction, p.comment = u32(o[2]), string(o[1])
			c.packets = append(c.packets, p)
		case kind == 5:
			o := options(body[12:])
			c.received += binary.NativeEndian.Uint64(o[4])
			c.dropped += binary.NativeEndian.Uint64(o[5])
		}
	}
	return c
}

// runCapture runs the tool with -w, and reads the file.
func runCapture(t testing.TB, args []string, load func()) (capture, *tooltest.Result) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.pcapng")
	res := tooltest.JSONUndisturbed(t, Tool, append([]string{"-w", path}, args...), load)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := readCapture(t, b)
	lost := uint64(res.Summary.Num("lost")) // also program runs that the kernel skipped
	if c.received != uint64(len(c.packets)) || c.dropped != lost {
		t.Errorf("the statistics count %d packets and %d dropped ones, want %d and %d", c.received, c.dropped, len(c.packets), lost)
	}
	return c, res
}

// TestPair captures what two processes exchange over a veth pair, each in a network namespace of
// its own, over IPv4 and IPv6. Each payload is known, and captured once on each end of the pair.
func TestPair(t *testing.T) {
	var pid, peer, ns, peerNS int
	before := uint64(time.Now().UnixNano())
	c, _ := runCapture(t, []string{fmt.Sprintf("port %d", port)}, func() {
		cmd := tcptest.InRole("near")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if _, err := fmt.Sscan(tcptest.Output(t, cmd), &pid, &ns, &peer, &peerNS); err != nil {
			t.Fatal(err)
		}
	})
	after := uint64(time.Now().UnixNano())
	const in, out = 1, 2
	for _, protocol := range []string{"tcp", "udp"} {
		for family, header := range map[string]int{"4": 20, "6": 40} {
			transport := map[string]int{"tcp": 32, "udp": 8}[protocol]
			for _, want := range []struct {
				payload   string
				device    string
				ns, pid   int
				direction uint32
			}{
				{request(protocol, family), nearName, ns, pid, out},
				{request(protocol, family), farName, peerNS, peer, in},
				{answer(protocol, family), farName, peerNS, peer, out},
				{answer(protocol, family), nearName, ns, pid, in},
			} {
				i := slices.IndexFunc(c.packets, func(p packet) bool {
					return p.device == want.device && bytes.HasSuffix(p.data, []byte(want.payload)) &&
						strings.HasSuffix(p.description, fmt.Sprintf("namespace %d", want.ns))
				})
				if i < 0 {
					t.Errorf("no packet with %q on %s in namespace %d", want.payload, want.device, want.ns)
					continue
				}
				p := c.packets[i]
				length := 14 + header + transport + len(want.payload)
				if p.direction != want.direction || len(p.data) != length || int(p.length) != length || p.link != 1 {
					t.Errorf("%q on %s: direction %d, %d of %d bytes, link type %d; want direction %d, %d bytes, link type 1",
						want.payload, want.device, p.direction, len(p.data), p.length, p.link, want.direction, length)
				}
				if who := fmt.Sprintf("pid=%d ", want.pid); !strings.HasPrefix(p.comment, who) {
					t.Errorf("%q on %s has the comment %q, want %q", want.payload, want.device, p.comment, who)
				}
				if p.at < before || p.at > after {
					t.Errorf("%q on %s has the time %d, want one from %d to %d", want.payload, want.device, p.at, before, after)
				}
			}
		}
	}
	// All packets of the four exchanges belong to one of the two processes.
	for _, p := range c.packets {
		mine := strings.HasSuffix(p.description, fmt.Sprintf(" %d", ns)) || strings.HasSuffix(p.description, fmt.Sprintf(" %d", peerNS))
		want := map[string]int{nearName: pid, farName: peer}[p.device]
		if mine && !strings.HasPrefix(p.comment, fmt.Sprintf("pid=%d ", want)) {
			t.Errorf("a packet on %s has the comment %q, want pid %d: % x", p.device, p.comment, want, p.data)
		}
	}
}

// TestSnaplen checks that -s cuts packets and keeps their length.
func TestSnaplen(t *testing.T) {
	const snaplen = 60
	to, from := datagrams(t, "127.0.0.1")
	c, _ := runCapture(t, []string{"-s", fmt.Sprint(snaplen), "--pid", fmt.Sprint(os.Getpid()), "udp"}, func() { send(t, from, to, 1000) })
	i := slices.IndexFunc(c.packets, func(p packet) bool { return p.length == 14+28+1000 })
	if i < 0 {
		t.Fatalf("no packet of 1,042 bytes in %d packets", len(c.packets))
	}
	if got := len(c.packets[i].data); got != snaplen {
		t.Errorf("%d bytes were captured, want %d", got, snaplen)
	}
}

// datagrams returns two sockets on a loopback address.
func datagrams(t testing.TB, host string) (to net.PacketConn, from net.Conn) {
	t.Helper()
	to, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	from, err = net.Dial("udp", to.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close(); from.Close() })
	return to, from
}

func send(t testing.TB, from net.Conn, to net.PacketConn, size int) {
	t.Helper()
	if _, err := from.Write(make([]byte, size)); err != nil {
		t.Error(err)
	}
	if _, _, err := to.ReadFrom(make([]byte, 1<<16)); err != nil {
		t.Error(err)
	}
}

func portOf(a net.Addr) float64 { return float64(a.(*net.UDPAddr).Port) }

// TestRows compares rows with the datagrams that this process sends to itself, one per size.
func TestRows(t *testing.T) {
	sizes := []int{1, 100, 1400, 9000, 40000}
	for _, tt := range []struct {
		name, host string
		headers    int
		args       []string
		direction  string
	}{
		{"IPv4", "127.0.0.1", 28, nil, "out"},
		{"IPv6", "::1", 48, nil, "out"},
		{"received", "127.0.0.1", 28, []string{"-Q", "in"}, "in"},
		{"owner", "127.0.0.1", 28, []string{"--pid", fmt.Sprint(os.Getpid())}, "out"},
		{"expression", "127.0.0.1", 28, []string{"-i", "lo", "udp", "and", "net", "127.0.0.0/8", "and", "not", "port", "1"}, "out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to, from := datagrams(t, tt.host)
			res := tooltest.JSONUndisturbed(t, Tool, tt.args, func() {
				for _, size := range sizes {
					send(t, from, to, size)
				}
			})
			rows := res.Where(func(r tooltest.Row) bool { return r.Num("dport") == portOf(to.LocalAddr()) })
			if len(rows) != len(sizes) {
				t.Fatalf("%d rows, want %d: %v", len(rows), len(sizes), rows)
			}
			for i, size := range sizes {
				tcptest.Fields(t, fmt.Sprint(size, " bytes"), rows[i], map[string]any{
					"pid": os.Getpid(), "comm": tcptest.Comm(), "interface": "lo", "direction": tt.direction, "protocol": "udp",
					"saddr": tt.host, "daddr": tt.host, "sport": int(portOf(from.LocalAddr())), "length_bytes": 14 + tt.headers + size,
				})
			}
		})
	}
}

// TestConnection checks that packets of both ends of a connection have an owner, from the SYN to the
// last ACK, and their flags and sequence numbers.
func TestConnection(t *testing.T) {
	l := tcptest.Listen(t, "127.0.0.1:0")
	rport := tcptest.Port(l.Addr())
	res := tooltest.JSONUndisturbed(t, Tool, []string{fmt.Sprintf("tcp port %d", rport)}, func() {
		p := tcptest.Connect(t, l, "127.0.0.1", 0)
		p.Send(p.Client, p.Server, 1000)
		p.Fin(p.Client, p.Server)
	})
	seen := map[string]int{}
	for _, r := range res.Where(func(tooltest.Row) bool { return true }) {
		if int(r.Num("pid")) != os.Getpid() {
			t.Errorf("row of process %v, want %d: %v", r.Num("pid"), os.Getpid(), r)
		}
		seen[strings.Join(r.List("flags"), "|")]++
	}
	if seen["SYN"] == 0 || seen["SYN|ACK"] == 0 || seen["FIN|ACK"] < 2 {
		t.Errorf("flags of packets: %v, want SYN, SYN|ACK and two FIN|ACK", seen)
	}
}

// TestNoMatch checks that an expression excludes packets.
func TestNoMatch(t *testing.T) {
	to, from := datagrams(t, "127.0.0.1")
	expression := fmt.Sprintf("not (udp and port %v)", portOf(to.LocalAddr()))
	res := tooltest.JSON(t, Tool, []string{expression}, func() { send(t, from, to, 10) })
	if rows := res.Where(func(r tooltest.Row) bool { return r.Num("dport") == portOf(to.LocalAddr()) }); len(rows) != 0 {
		t.Errorf("rows that %q excludes: %v", expression, rows)
	}
}

// reusePort binds a UDP socket to a port that others can bind too.
func reusePort(port int) (net.PacketConn, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
			return e
		}
		return err
	}}
	return c.ListenPacket(context.Background(), "udp4", fmt.Sprintf("127.0.0.1:%d", port))
}

// share binds a port that the test has bound, until its input ends.
func share() error {
	port, err := strconv.Atoi(os.Getenv("SHARED_PORT"))
	if err != nil {
		return err
	}
	if _, err := reusePort(port); err != nil {
		return err
	}
	fmt.Println("bound")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestShared checks that a received datagram has an owner, and none while another process has bound
// the same port, because either can receive it.
func TestShared(t *testing.T) {
	to, err := reusePort(0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	port := to.LocalAddr().(*net.UDPAddr).Port
	send := func() {
		c, err := net.Dial("udp4", to.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("shared")); err != nil {
			t.Error(err)
		}
	}
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-Q", "in", fmt.Sprintf("udp dst port %d", port)}, func() {
		send()
		cmd := tcptest.InRole("share", fmt.Sprintf("SHARED_PORT=%d", port))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 10))
		send()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var pids []int
	for _, r := range res.Where(func(tooltest.Row) bool { return true }) {
		pids = append(pids, int(r.Num("pid")))
	}
	if want := []int{os.Getpid(), 0}; !slices.Equal(pids, want) {
		t.Errorf("owners of the datagrams: %v, want %v", pids, want)
	}
}

func TestRefuses(t *testing.T) {
	_, slave := tooltest.PTY(t)
	tooltest.Fails(t, Tool, []string{"-w", slave.Name()}, tool.ExitFailure, "it is a terminal")
	for args, text := range map[string]string{
		"-s 100":              "--snaplen: it needs --write",
		"host example.org":    "names are not resolved",
		"port 70000":          "not a port",
		"tcp[2] == 5":         "other bytes of headers are not supported",
		"port 80 and":         "unexpected end",
		"(port 80":            "want )",
		"port 80 )":           `unexpected ")"`,
		"inbound":             "use --direction",
		"net 10.0.0.1/8":      "bits after the prefix are not 0",
		"-i abcdefghijklmnop": "at most 15 bytes",
	} {
		tooltest.Fails(t, Tool, strings.Fields(args), tool.ExitUsage, text)
	}
}
