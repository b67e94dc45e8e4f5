package tcpconnect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// reply returns an answer with an alias and these addresses.
func reply(id uint16, name string, kind dnsmessage.Type, addrs ...string) []byte {
	q := dnsmessage.Question{Name: must(dnsmessage.NewName(name)), Type: kind, Class: dnsmessage.ClassINET}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true})
	b.EnableCompression()
	real := must(dnsmessage.NewName("real.example.org."))
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}
	err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers(), b.CNAMEResource(head, dnsmessage.CNAMEResource{CNAME: real}))
	head.Name = real
	for _, a := range addrs {
		if addr := netip.MustParseAddr(a); addr.Is4() {
			err = errors.Join(err, b.AResource(head, dnsmessage.AResource{A: addr.As4()}))
		} else {
			err = errors.Join(err, b.AAAAResource(head, dnsmessage.AAAAResource{AAAA: addr.As16()}))
		}
	}
	if err != nil {
		panic(err)
	}
	return must(b.Finish())
}

// methods are the ways in which a task can receive an answer, each with its own name and address.
func methods() []string { return []string{"go", "recvfrom", "recvmsg", "connected", "parts", "ipv6"} }

func addressOf(method string) string {
	if method == "ipv6" {
		return "::1"
	}
	return fmt.Sprintf("127.0.1.%d", slices.Index(methods(), method)+1)
}

// serve answers names of methods with their addresses, on the DNS port.
func serve(conn net.PacketConn) {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var p dnsmessage.Parser
		h := must(p.Start(buf[:n]))
		q := must(p.Question())
		method, _, _ := strings.Cut(q.Name.String(), ".")
		_ = must(conn.WriteTo(reply(h.ID, q.Name.String(), q.Type, addressOf(method)), from))
	}
}

// namesRole looks up names with each method, in its own network namespace, and connects to the
// addresses in the answers.
func namesRole() error {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go serve(conn)
	for _, method := range methods() {
		if err := ask(method); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		if _, err := net.Dial("tcp", net.JoinHostPort(addressOf(method), "9")); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("%s: connect: %w", method, err)
		}
	}
	_, err = net.Dial("tcp", "127.0.2.1:9") // not looked up
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}

func ask(method string) error {
	if method == "go" || method == "ipv6" {
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return net.Dial("udp4", "127.0.0.1:53")
		}}
		network := map[string]string{"go": "ip4", "ipv6": "ip6"}[method]
		_, err := r.LookupNetIP(context.Background(), network, method+".example.org.")
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: must(dnsmessage.NewName(method + ".example.org.")), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	if method == "connected" {
		err = unix.Connect(fd, local(53))
		_, werr := unix.Write(fd, must(q.Pack()))
		err = errors.Join(err, werr)
	} else {
		err = unix.Sendto(fd, must(q.Pack()), 0, local(53))
	}
	if err != nil {
		return err
	}
	return receive(fd, method)
}

func receive(fd int, method string) error {
	buf := make([]byte, 512)
	for {
		var err error
		switch method {
		case "recvmsg":
			_, _, _, _, err = unix.Recvmsg(fd, buf, nil, 0)
		case "parts": // the header, the name and the address are in several buffers
			_, _, _, _, err = unix.RecvmsgBuffers(fd, [][]byte{buf[:5], buf[5:6], buf[6:20], buf[20:]}, nil, 0)
		case "connected": // recvfrom without a buffer for the sender
			_, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), 512, 0, 0, 0)
			if err = nil; errno != 0 {
				err = errno
			}
		default:
			_, _, err = unix.Recvfrom(fd, buf, 0)
		}
		if err != unix.EINTR {
			return err
		}
	}
}

func TestNames(t *testing.T) {
	child := tcptest.InRole("names")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	res := tooltest.JSON(t, Tool, []string{"-d"}, func() { tcptest.Output(t, child) })
	rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == child.Process.Pid })
	if len(rows) != len(methods())+1 {
		t.Fatalf("%d rows, want one for each of %q and one more: %v", len(rows), methods(), rows)
	}
	for i, method := range methods() {
		tcptest.Fields(t, method, rows[i], map[string]any{"raddr": addressOf(method), "name": method + ".example.org"})
		if age := rows[i].Num("name_age_ns"); age <= 0 || age > 10e9 {
			t.Errorf("%s: the answer was %v ns old", method, age)
		}
	}
	tcptest.Fields(t, "not looked up", rows[len(methods())], map[string]any{"raddr": "127.0.2.1", "name": nil, "name_age_ns": nil})
}

// TestNamesFilter checks that answers are read for all tasks, and that rows can be filtered by
// name.
func TestNamesFilter(t *testing.T) {
	child := tcptest.InRole("names")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	res := tooltest.JSON(t, Tool, []string{"--filter", "name startsWith 'recv'"}, func() { tcptest.Output(t, child) })
	if len(res.Events) != 2 {
		t.Errorf("%d rows, want those by recvfrom and recvmsg: %v", len(res.Events), res.Events)
	}
}

func TestDNSText(t *testing.T) {
	child := tcptest.InRole("names")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out := tooltest.Text(t, Tool, []string{"-d", "-P", "9"}, func() { tcptest.Output(t, child) })
	header, _, _ := strings.Cut(out, "\n")
	if !strings.HasSuffix(strings.TrimSpace(header), "QUERY                       AGE_MS") || !strings.Contains(out, " go.example.org ") {
		t.Errorf("%q", out)
	}
}

func TestLearn(t *testing.T) {
	n := newNames()
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	n.learn(7, 100, reply(1, "a.test.", dnsmessage.TypeA, one.String(), other.String()))
	n.learn(8, 200, reply(1, "b.test.", dnsmessage.TypeA, one.String()))
	for _, c := range []struct {
		pid  uint32
		addr netip.Addr
		name value.Name
		at   value.Time
	}{
		{7, one, "a.test", 100}, {8, one, "b.test", 200}, {9, one, "b.test", 200},
		{8, other, "a.test", 100}, {7, netip.MustParseAddr("192.0.2.2"), "", 0},
	} {
		if name, at := n.find(c.pid, c.addr); name != c.name || at != c.at {
			t.Errorf("process %d: name of %s is %q, learned at %d, want %q at %d", c.pid, c.addr, name, at, c.name, c.at)
		}
	}
	// A question is not an answer.
	asked := reply(1, "c.test.", dnsmessage.TypeA, one.String())
	asked[2] &^= 0x80
	if n.learn(9, 300, asked); must2(n.find(9, one)) != "b.test" {
		t.Error("name of a question is used")
	}
}

func must2(name value.Name, _ value.Time) value.Name { return name }

// TestForget checks that the number of names is limited, and that the newest remain.
func TestForget(t *testing.T) {
	n := newNames()
	for i := range 5 * namesKept {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		n.learn(1, value.Time(i+1), reply(1, strconv.Itoa(i)+".test.", dnsmessage.TypeA, addr.String()))
	}
	if len(n.young)+len(n.old) > 4*namesKept {
		t.Errorf("%d names are kept", len(n.young)+len(n.old))
	}
	last := 5*namesKept - 1
	if got := must2(n.find(1, netip.AddrFrom4([4]byte{10, byte(last >> 16), byte(last >> 8), byte(last)}))); got != value.Name(strconv.Itoa(last)+".test") {
		t.Errorf("the newest is %q", got)
	}
}

func FuzzLearn(f *testing.F) {
	whole := reply(1, "a.test.", dnsmessage.TypeA, "192.0.2.1", "2001:db8::1")
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(bytes.Repeat([]byte{0xc0, 12}, 40))
	f.Fuzz(func(t *testing.T, message []byte) {
		n := newNames()
		n.learn(1, 1, message)
		if len(n.young) > 2*len(message) {
			t.Errorf("%d names of %d bytes", len(n.young), len(message))
		}
	})
}
