package rdmaucma

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// Commands of /dev/infiniband/rdma_cm: see include/uapi/rdma/rdma_user_cm.h.
const (
	createID     = 0
	resolveIP    = 3
	resolveRoute = 4
	getEvent     = 12
)

// device opens the device of the module. It skips the test without the module, where the tool says so.
func device(t *testing.T) int {
	t.Helper()
	tooltest.KernelFunctions(t)
	number, err := os.ReadFile("/sys/class/misc/rdma_cm/dev")
	if err == nil && !tooltest.HasType(t, "rdma_ucm", "rdma_cm_id") {
		tooltest.Fails(t, Tool, nil, 4, "5.11")
		t.Skip("the kernel does not describe the types of the module (5.11)")
	}
	if err != nil {
		tooltest.Fails(t, Tool, nil, 4, "rdma_ucm")
		t.Skipf("the module rdma_ucm is not loaded: %v", err)
	}
	var minor int
	if _, text, _ := strings.Cut(strings.TrimSpace(string(number)), ":"); text != "" {
		for _, digit := range text {
			minor = minor*10 + int(digit-'0')
		}
	}
	path := filepath.Join(t.TempDir(), "rdma_cm")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(10, uint32(minor)))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("cannot open the device of rdma_ucm: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// call writes a command with its structure.
func call(t *testing.T, fd int, command uint32, out uint16, body any) {
	t.Helper()
	var b, text bytes.Buffer
	_ = binary.Write(&text, binary.NativeEndian, body)
	_ = binary.Write(&b, binary.NativeEndian, struct {
		Command uint32
		In, Out uint16
	}{command, uint16(text.Len()), out})
	b.Write(text.Bytes())
	if _, err := unix.Write(fd, b.Bytes()); err != nil {
		t.Errorf("command %d: %v", command, err)
	}
}

// address is the only one of the device of the test (RFC 5737).
var address = [4]byte{192, 0, 2, 1}

// sockaddr returns a struct sockaddr_in6 with the address of the device and this port.
func sockaddr(port uint16) (a [28]byte) {
	binary.NativeEndian.PutUint16(a[:], unix.AF_INET)
	binary.BigEndian.PutUint16(a[2:], port)
	copy(a[4:], address[:])
	return a
}

// softDevice makes an RDMA device without hardware, in a network namespace of its own that ends with
// the test. The function that it returns executes another one in that namespace.
func softDevice(t *testing.T) (inside func(func())) {
	t.Helper()
	if _, err := os.Stat("/sys/module/rdma_rxe"); err != nil {
		t.Skipf("the module rdma_rxe, for RDMA without hardware, is not loaded: %v", err)
	}
	jobs, done := make(chan func()), make(chan bool)
	go func() { // its thread, and with it the namespace, ends with the goroutine
		runtime.LockOSThread()
		for job := range jobs {
			job()
			done <- true
		}
	}()
	inside = func(job func()) { jobs <- job; <-done }
	t.Cleanup(func() { close(jobs) })
	var err error
	inside(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			err = addDevice("rdma0")
		}
	})
	if err != nil {
		t.Fatalf("make an RDMA device: %v", err)
	}
	return inside
}

// addDevice adds a network device with the address, and an RDMA device that uses it.
func addDevice(name string) error {
	text := append([]byte(name), 0)
	kind := attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("dummy")))
	if err := request(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, text), kind); err != nil {
		return fmt.Errorf("add network device: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := ifreq.SetInet4Addr(address[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCSIFADDR, ifreq); err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	ifreq.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifreq); err != nil {
		return fmt.Errorf("set device up: %w", err)
	}
	// See include/uapi/rdma/rdma_netlink.h.
	const newLink, deviceName, netDevice, linkType = 5<<10 | 3, 2, 51, 65
	rxe := attribute(linkType, []byte("rxe\x00"))
	if err := request(unix.NETLINK_RDMA, newLink, 0, attribute(deviceName, []byte("rxe-test\x00")), rxe, attribute(netDevice, text)); err != nil {
		return fmt.Errorf("add RDMA device: %w", err)
	}
	return nil
}

// attribute returns a netlink attribute.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// request sends a netlink message and returns the error that the kernel answers.
func request(protocol int, kind, flags uint16, parts ...[]byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	body := bytes.Join(parts, nil)
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, unix.NlMsghdr{
		Len: uint32(unix.SizeofNlMsghdr + len(body)), Type: kind, Flags: flags | unix.NLM_F_REQUEST | unix.NLM_F_ACK,
	})
	b.Write(body)
	if err := unix.Sendto(s, b.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, err := unix.Read(s, answer)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("answer of %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// TestEvents resolves the address of an RDMA device without hardware, and the route to it, and compares
// the rows with the events that the program receives.
func TestEvents(t *testing.T) {
	fd := device(t)
	inside := softDevice(t)
	const port = 4711
	type event struct {
		UID               uint64
		ID, Event, Status uint32
		Rest              [128]uint32
	}
	var received []event
	next := func() {
		var e event
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000); n != 1 {
			t.Errorf("no event: %v", err)
			return
		}
		call(t, fd, getEvent, 400, struct{ Response uint64 }{uint64(uintptr(unsafe.Pointer(&e)))})
		received = append(received, e)
	}
	res := tooltest.JSON(t, Tool, nil, func() {
		inside(func() {
			var id uint32
			call(t, fd, createID, 4, struct {
				UID, Response uint64
				Space         uint16
				Type          uint8
				_             [5]uint8
			}{1, uint64(uintptr(unsafe.Pointer(&id))), 0x0106, 2, [5]uint8{}})
			call(t, fd, resolveIP, 0, struct {
				From, To    [28]byte
				ID, Timeout uint32
			}{[28]byte{}, sockaddr(port), id, 1000})
			next()
			call(t, fd, resolveRoute, 0, struct{ ID, Timeout uint32 }{id, 1000})
			next()
		})
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("rport") == port })
	if len(rows) != 2 || len(received) != 2 {
		t.Fatalf("%d rows, %d events, want two: %v", len(rows), len(received), res.Events)
	}
	for i, want := range []string{"addr_resolved", "route_resolved"} {
		r, e := rows[i], received[i]
		if r.Str("event") != want || events[e.Event] != want || r.Num("status") != 0 || e.Status != 0 || r.Num("family") != 4 ||
			r.Str("laddr") != "192.0.2.1" || r.Str("raddr") != "192.0.2.1" || r.Str("port_space") != "tcp" {
			t.Errorf("row %v, the program received event %d with status %d, want %s", r, e.Event, int32(e.Status), want)
		}
	}
}

func TestDecode(t *testing.T) {
	r := row{event: event{Kind: 9, Status: -110, PortSpace: 0x106, LocalEnd: end{Family: 6, Port: 7}}}
	if err := r.Decode(nil); err != nil || r.Event != "established" || r.Space != "tcp" || r.LPort.N != 7 || !r.RAddr.Absent() || r.Family.N != 6 {
		t.Errorf("row %+v: %v", r, err)
	}
	r.Kind, r.PortSpace = 99, 1
	if err := r.Decode(nil); err != nil || r.Event != "99" || r.Space != "0x1" {
		t.Errorf("row %+v: %v", r, err)
	}
}
