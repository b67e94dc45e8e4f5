package dnssnoop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

func TestMain(m *testing.M) { tcptest.Main(m, map[string]func() error{"ask": askRole}) }

// delay is the time that the server takes for the names slow.*.
const delay = 30 * time.Millisecond

// reply returns the answer to a query: an alias and an address, or NXDOMAIN for names nx.*.
func reply(asked []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(asked)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil { // a name that dnsmessage refuses: an answer without records
		answer := bytes.Clone(asked)
		answer[2] |= 0x80
		return answer, nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true}, Questions: []dnsmessage.Question{q}}
	if strings.HasPrefix(q.Name.String(), "slow.") {
		time.Sleep(delay)
	}
	if strings.HasPrefix(q.Name.String(), "nx.") {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	real := dnsmessage.MustNewName("real.test.")
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
	m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: real}}}
	head.Name = real
	if q.Type == dnsmessage.TypeAAAA {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: [16]byte{15: 1}}})
	} else {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}})
	}
	return m.Pack()
}

// serve answers queries, except for names silent.*.
func serve(conn net.PacketConn) {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := reply(buf[:n]); err == nil && !bytes.Contains(buf[:n], []byte("\x06silent")) {
			conn.WriteTo(answer, from)
		}
	}
}

// serveTCP answers the queries on each connection.
func serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var size uint16
		for binary.Read(c, binary.BigEndian, &size) == nil {
			query := make([]byte, size)
			if _, err := io.ReadFull(c, query); err != nil {
				break
			}
			answer, _ := reply(query)
			c.Write(append(length(answer), answer...))
		}
		c.Close()
	}
}

// length returns what precedes a message with TCP.
func length(m []byte) []byte { return binary.BigEndian.AppendUint16(nil, uint16(len(m))) }

// parts splits a message into buffers of n bytes, the last of which is longer.
func parts(b []byte, n, count int) (all [][]byte) {
	for range count - 1 {
		all, b = append(all, b[:n]), b[n:]
	}
	return append(all, b)
}

// ask returns a query for the IPv4 address.
func ask(name string, id uint16) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func server() unix.Sockaddr { return &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}} }

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	unix.Msghdr
	len uint32
	_   uint32
}

// mmsg calls sendmmsg or recvmmsg for the buffers, and returns the number of messages.
func mmsg(call uintptr, fd int, bufs [][]byte) (int, error) {
	all, iovs := make([]mmsghdr, len(bufs)), make([]unix.Iovec, len(bufs))
	for i, b := range bufs {
		iovs[i].Base = &b[0]
		iovs[i].SetLen(len(b))
		all[i].Iov = &iovs[i]
		all[i].SetIovlen(1)
	}
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&all[0])), uintptr(len(all)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ways are ways to send a query and to receive its answer, by the names that they ask for.
func ways() map[string]func(fd int, q []byte) error {
	buf := make([]byte, 512)
	return map[string]func(int, []byte) error{
		"sendto": func(fd int, q []byte) error {
			if err := unix.Sendto(fd, q, 0, server()); err != nil {
				return err
			}
			// The address of the sender comes with the second read only.
			_, _, peek := unix.Recvfrom(fd, buf, unix.MSG_PEEK)
			_, _, err := unix.Recvfrom(fd, buf, 0)
			return errors.Join(peek, err)
		},
		"sendmsg": func(fd int, q []byte) error {
			if err := unix.Sendmsg(fd, q, nil, server(), 0); err != nil {
				return err
			}
			_, _, _, _, err := unix.Recvmsg(fd, buf, nil, 0)
			return err
		},
		"write": func(fd int, q []byte) error {
			err := unix.Connect(fd, server())
			_, sent := unix.Write(fd, q)
			_, received := unix.Read(fd, buf)
			return errors.Join(err, sent, received)
		},
		"writev": func(fd int, q []byte) error {
			err := unix.Connect(fd, server())
			_, sent := unix.Writev(fd, [][]byte{q})
			_, received := unix.Readv(fd, [][]byte{buf})
			return errors.Join(err, sent, received)
		},
		"sendmmsg": func(fd int, q []byte) error {
			err := unix.Connect(fd, server())
			_, sent := mmsg(unix.SYS_SENDMMSG, fd, [][]byte{q, ask("second.test.", 99)})
			received := 0
			for received < 2 && err == nil {
				var n int
				n, err = mmsg(unix.SYS_RECVMMSG, fd, [][]byte{make([]byte, 512), make([]byte, 512)})
				received += n
			}
			return errors.Join(err, sent)
		},
		"sendmsgparts": func(fd int, q []byte) error {
			_, sent := unix.SendmsgBuffers(fd, parts(q, 7, 3), nil, server(), 0)
			_, _, _, _, received := unix.RecvmsgBuffers(fd, parts(buf, 15, 3), nil, 0)
			return errors.Join(sent, received)
		},
		"writevparts": func(fd int, q []byte) error {
			err := unix.Connect(fd, server())
			_, sent := unix.Writev(fd, parts(q, 1, 8))
			_, received := unix.Readv(fd, parts(buf, 1, 8))
			return errors.Join(err, sent, received)
		},
		"toomanyparts": func(fd int, q []byte) error {
			err := unix.Connect(fd, server())
			_, sent := unix.Writev(fd, parts(q, 1, 9))
			_, received := unix.Read(fd, buf)
			return errors.Join(err, sent, received)
		},
		"dotXnulY": func(fd int, q []byte) error {
			copy(q[bytes.IndexByte(q, 'X'):], ".")
			copy(q[bytes.IndexByte(q, 'Y'):], "\x00")
			err := unix.Sendto(fd, q, 0, server())
			_, _, received := unix.Recvfrom(fd, buf, 0)
			return errors.Join(err, received)
		},
		"silent": func(fd int, q []byte) error {
			return errors.Join(unix.Sendto(fd, q, 0, server()), unix.Sendto(fd, q, 0, server()))
		},
	}
}

// asked is what a process in the role "ask" prints: the time that the query for slow.test took.
type asked struct{ Slow time.Duration }

// askRole starts a server in its own network namespace, and sends queries in each way.
func askRole() error {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go serve(conn)
	l, err := net.Listen("tcp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go serveTCP(l)
	for name, way := range ways() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		err = way(fd, ask(name+".test.", uint16(len(name))))
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := askTCP(); err != nil {
		return fmt.Errorf("TCP: %w", err)
	}
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp4", "127.0.0.1:53")
	}}
	var out asked
	begin := time.Now()
	if _, err := r.LookupNetIP(context.Background(), "ip6", "slow.test."); err != nil {
		return err
	}
	out.Slow = time.Since(begin)
	var missing *net.DNSError
	if _, err := r.LookupNetIP(context.Background(), "ip4", "nx.test."); !errors.As(err, &missing) || !missing.IsNotFound {
		return fmt.Errorf("look up a missing name: %w", err)
	}
	b, err := json.Marshal(out)
	fmt.Println(string(b))
	return err
}

// askTCP sends a query in one call, and reads the length of the answer before the answer. Then it
// sends and receives two messages in one call each, with separate buffers for the lengths.
func askTCP() error {
	c, err := net.Dial("tcp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	defer c.Close()
	q := ask("tcp.test.", 7)
	if _, err := c.Write(append(length(q), q...)); err != nil {
		return err
	}
	var size uint16
	if err := binary.Read(c, binary.BigEndian, &size); err != nil {
		return err
	}
	if _, err = io.ReadFull(c, make([]byte, size)); err != nil {
		return err
	}
	a, b := ask("tcpfirst.test.", 1), ask("a.tcpsecond.test.", 2)
	bufs := net.Buffers{length(a), a, length(b), b}
	if _, err := bufs.WriteTo(c); err != nil { // writev
		return err
	}
	first, err := reply(a)
	second, errSecond := reply(b)
	raw, errRaw := c.(*net.TCPConn).File() // a blocking descriptor
	if err := errors.Join(err, errSecond, errRaw); err != nil {
		return err
	}
	defer raw.Close()
	if err := unix.SetNonblock(int(raw.Fd()), false); err != nil {
		return err
	}
	all := make([]byte, 2+len(first)+2+len(second))
	n, _, _, _, err := unix.RecvmsgBuffers(int(raw.Fd()), parts(all, 2, 2), nil, unix.MSG_WAITALL)
	if err == nil && n < len(all) {
		err = fmt.Errorf("received %d of %d bytes", n, len(all))
	}
	return err
}

// TestQueries compares the rows of a process with the queries that it has sent.
func TestQueries(t *testing.T) {
	cmd := tcptest.InRole("ask")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	var out asked
	res := tooltest.JSON(t, Tool, nil, func() {
		if err := json.Unmarshal([]byte(tcptest.Output(t, cmd)), &out); err != nil {
			t.Error(err)
		}
	})
	rows := map[string][]tooltest.Row{}
	for _, r := range res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == cmd.Process.Pid }) {
		name := strings.TrimSuffix(r.Str("name"), ".test")
		rows[name] = append(rows[name], r)
	}
	for _, name := range []string{
		"sendto", "sendmsg", "write", "writev", "sendmmsg", "second", "tcp", "slow", "nx", "sendmsgparts", "writevparts", `dot\.nul\000`,
		"tcpfirst", "a.tcpsecond",
	} {
		r := tcptest.One(t, name, rows[name])
		want := map[string]any{
			"qtype": "A", "rcode": "NOERROR", "protocol": "udp", "raddr": "127.0.0.1", "rport": 53, "comm": tcptest.Comm(), "truncated": false,
		}
		answers := []string{"real.test", "192.0.2.1"}
		switch name {
		case "tcp":
			want["protocol"], want["id"] = "tcp", 7
		case "tcpfirst":
			want["protocol"], want["id"] = "tcp", 1
		case "a.tcpsecond":
			want["protocol"], want["id"] = "tcp", 2
		case `dot\.nul\000`:
			answers = nil
		case "second":
			want["id"] = 99
		case "slow":
			want["qtype"], answers = "AAAA", []string{"real.test", "::1"}
			if d := time.Duration(r.Num("latency_ns")); d < delay || d > out.Slow {
				t.Errorf("latency %s of a lookup that took %s, want at least %s", d, out.Slow, delay)
			}
		case "nx":
			want["rcode"], answers = "NXDOMAIN", nil
		}
		tcptest.Fields(t, name, r, want)
		if !slices.Equal(r.List("answers"), answers) || r.Num("latency_ns") <= 0 {
			t.Errorf("%s: answers %q, want %q: %v", name, r.List("answers"), answers, r)
		}
	}
	// A query in too many buffers is lost, so its answer has no latency.
	tcptest.Fields(t, "toomanyparts", tcptest.One(t, "toomanyparts", rows["toomanyparts"]), map[string]any{"rcode": "NOERROR", "latency_ns": nil})
	if n := res.Summary.Object("reasons").Num("unobserved"); n != 1 {
		t.Errorf("%v messages are lost, want 1: %v", n, res.Summary)
	}
	if len(rows["silent"]) != 2 || len(rows) != 16 {
		t.Fatalf("%d rows of a query sent twice without an answer, %d names: %v", len(rows["silent"]), len(rows), rows)
	}
	for _, r := range rows["silent"] {
		tcptest.Fields(t, "silent", r, map[string]any{"rcode": nil, "latency_ns": nil, "qtype": "A", "raddr": "127.0.0.1"})
	}
}

// TestFilters selects by process and port, and shows text.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	run := func(args ...string) string {
		cmd := tcptest.InRole("ask")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		var out string
		text := tooltest.Text(t, Tool, args, func() { tcptest.Output(t, cmd) })
		for line := range strings.Lines(text) {
			out += strings.Join(strings.Fields(strings.ReplaceAll(line, " "+strconv.Itoa(cmd.Process.Pid)+" ", " PID ")), " ") + "\n"
		}
		return out
	}
	out := run("-a", "-t", "--comm", tcptest.Comm())
	if want := "TIME(s) PID COMM SERVER PROTO TYPE RCODE LAT(ms) NAME ANSWERS\n"; !strings.HasPrefix(out, want) {
		t.Errorf("%q does not begin with %q", out, want)
	}
	for _, part := range []string{" 127.0.0.1 tcp A NOERROR ", " tcp.test real.test 192.0.2.1\n", " udp A - - silent.test -\n", " udp A NXDOMAIN "} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in %q", part, out)
		}
	}
	for _, args := range [][]string{{"-P", "5353"}, {"-6", "--comm", tcptest.Comm()}, {"-p", "1"}} {
		if out := bufio.NewScanner(strings.NewReader(run(args...))); out.Scan() && strings.Contains(out.Text(), ".test") {
			t.Errorf("%q: %s", args, out.Text())
		}
	}
}

// TestQueriesKept checks when a query is unanswered, and that their number is limited.
func TestQueriesKept(t *testing.T) {
	a := queries{open: map[question]query{}}
	add := func(id uint16, at value.Time) {
		var q query
		q.Sock, q.Time, q.ID = 1, at, id
		a.add(q)
	}
	add(1, 100)
	add(2, 200)
	if _, ok := a.take(1, 1); !ok {
		t.Error("the answer has no query")
	}
	if _, ok := a.next(300, false); ok {
		t.Error("a query is unanswered at once")
	}
	if q, ok := a.next(200+unansweredAfter, false); !ok || q.ID != 2 {
		t.Errorf("unanswered: %v, %v", q.ID, ok)
	}
	add(3, 400)
	add(3, 500)
	if q, ok := a.next(500, false); !ok || q.Time != 400 {
		t.Errorf("sent again: %v, %v", q.Time, ok)
	}
	if q, ok := a.next(500, true); !ok || q.Time != 500 {
		t.Errorf("open at the end: %v, %v", q.Time, ok)
	}
	if _, ok := a.next(500, true); ok || len(a.open) > 0 {
		t.Errorf("%d queries remain", len(a.open))
	}
}

// TestNames compares the presentation format of names in wire format.
func TestNames(t *testing.T) {
	long := strings.Repeat("\x01a", 127) + "\x00"
	for wire, want := range map[string]name{
		"\x00":                       ".",
		"\x01a\x02bc\x00":            "a.bc",
		"\x03a.b\x01c\x00":           `a\.b.c`,
		"\x05\\\x00\xff\x7f \x00":    `\\\000\255\127\032`,
		long:                         name(strings.TrimSuffix(strings.Repeat("a.", 127), ".")),
		"\x01b" + long:               "",
		"\x02a":                      "",
		"\xc0\x00":                   "",
		"\x01a\x00\x01b\xc0\x00\x00": "a",
	} {
		if got, _, _ := nameAt([]byte(wire), 0); got != want {
			t.Errorf("%q is %q, want %q", wire, got, want)
		}
	}
	if got, next, ok := nameAt([]byte("\x01a\x00\x01b\xc0\x00."), 3); got != "b.a" || next != 7 || !ok {
		t.Errorf("compressed name: %q, next %d, %v", got, next, ok)
	}
	var text, cell []byte
	l := list{value.List("a\\.b\x00c\x00")}
	if text, cell = l.AppendText(nil), l.AppendCell(nil); string(text) != `a\.b c` || string(cell) != `["a\\.b","c"]` {
		t.Errorf("text %s, CSV %s", text, cell)
	}
}

func FuzzParse(f *testing.F) {
	whole, err := reply(ask("a.test.", 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, false)
	f.Add(whole[:len(whole)-3], true)
	f.Add(bytes.Repeat([]byte{0xc0, 12}, 40), false)
	f.Fuzz(func(t *testing.T, b []byte, tcp bool) {
		for _, part := range messages(b, tcp) {
			if m, ok := parse(part); ok && len(m.answers) > 256*len(b) {
				t.Errorf("%d bytes of answers from %d", len(m.answers), len(b))
			}
		}
	})
}
