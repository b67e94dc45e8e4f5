package bindsnoop

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func me() string { return strconv.Itoa(os.Getpid()) }

// bound creates a socket, sets its options to 1, and binds it. It returns the port.
func bound(t testing.TB, domain, kind int, to unix.Sockaddr, options ...[2]int) int {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], 1); err != nil {
			t.Fatalf("set option %v: %v", o, err)
		}
	}
	if err := unix.Bind(fd, to); err != nil {
		t.Fatal(err)
	}
	return tcptest.BoundPort(t, fd)
}

func loopback(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

func netns(t testing.TB) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Ino)
}

// TestBind compares rows with the ports of getsockname.
func TestBind(t *testing.T) {
	var ports []int
	add := func(port int) { ports = append(ports, port) }
	want := []map[string]any{
		{"protocol": "tcp", "laddr": "127.0.0.1", "family": 4, "options": ".....", "requested_port": 0},
		{"protocol": "udp", "laddr": "::1", "family": 6, "options": ".....", "requested_port": 0},
		{"protocol": "tcp", "laddr": "::", "family": 6, "options": "...R."},
		{"protocol": "udp", "laddr": "192.0.2.1", "family": 4, "options": "F..Rr"},
		{"protocol": "tcp", "laddr": "127.0.0.1", "options": "..N..", "lport": 0},
		{"protocol": "tcp", "laddr": "192.0.2.2", "options": ".T..."},
	}
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		ports = nil
		add(bound(t, unix.AF_INET, unix.SOCK_STREAM, loopback(0)))
		add(bound(t, unix.AF_INET6, unix.SOCK_DGRAM, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}))
		add(bound(t, unix.AF_INET6, unix.SOCK_STREAM, &unix.SockaddrInet6{}, [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR}))
		add(bound(t, unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}}, [2]int{unix.SOL_IP, unix.IP_FREEBIND},
			[2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR}, [2]int{unix.SOL_SOCKET, unix.SO_REUSEPORT}))
		add(bound(t, unix.AF_INET, unix.SOCK_STREAM, loopback(0), [2]int{unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT}))
		add(bound(t, unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 2}}, [2]int{unix.SOL_IP, unix.IP_TRANSPARENT}))
	})
	if len(res.Events) != len(want) {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), len(want), res.Events)
	}
	for i, r := range res.Events {
		want[i]["lport"], want[i]["pid"], want[i]["comm"] = ports[i], os.Getpid(), tcptest.Comm()
		want[i]["ret"], want[i]["netns"], want[i]["ifindex"] = 0, netns(t), 0
		tcptest.Fields(t, "bind "+strconv.Itoa(i), r, want[i])
	}
}

// TestFailed binds to a port that is in use, and to no socket at all.
func TestFailed(t *testing.T) {
	load := func(t testing.TB) int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, loopback(0)); err != nil {
			t.Fatal(err)
		}
		port := tcptest.BoundPort(t, fd)
		other, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(other)
		if err := unix.Bind(other, loopback(port)); err != unix.EADDRINUSE {
			t.Errorf("bind to a port in use: %v", err)
		}
		unix.Bind(-1, loopback(port))
		return port
	}
	for _, args := range [][]string{{"-x"}, {"--errors"}, {}} {
		var port int
		res := tooltest.JSON(t, Tool, append(args, "-p", me()), func() { port = load(t) })
		if want := 1 + min(len(args), 1); len(res.Events) != want {
			t.Fatalf("%q: %d rows, want %d: %v", args, len(res.Events), want, res.Events)
		}
		tcptest.Fields(t, "bind", res.Events[0], map[string]any{"ret": 0, "lport": port, "protocol": "udp"})
		if len(args) > 0 {
			tcptest.Fields(t, "failed bind", res.Events[1], map[string]any{
				"ret": -int(unix.EADDRINUSE), "error": "EADDRINUSE", "lport": port, "requested_port": port, "laddr": "127.0.0.1",
			})
		}
		if closed := res.Summary.Object("counters").Num("closed"); closed != 0 {
			t.Errorf("%v calls counted as closed", closed)
		}
	}
}

// TestUnknown fails to bind to an address that cannot be read, and to one of another family.
func TestUnknown(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-x", "-p", me()}, func() {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), 8, unix.SizeofSockaddrInet6); errno != unix.EFAULT {
			t.Errorf("bind to an address that cannot be read: %v", errno)
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "/tmp/a-name-that-is-longer-than-an-address"}); err != unix.EAFNOSUPPORT {
			t.Errorf("bind to an address of AF_UNIX: %v", err)
		}
	})
	if len(res.Events) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(res.Events), res.Events)
	}
	for i, want := range []string{"EFAULT", "EAFNOSUPPORT"} {
		tcptest.Fields(t, want, res.Events[i], map[string]any{"error": want, "laddr": nil, "lport": nil, "requested_port": nil, "family": 6, "protocol": "udp"})
	}
}

// TestDevice binds to a port of an interface, in the program's own namespace.
func TestDevice(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.BindToDevice(fd, "lo"); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, loopback(0)); err != nil {
			t.Fatal(err)
		}
	})
	tcptest.Fields(t, "bind", tcptest.One(t, "bind", res.Events), map[string]any{"ifindex": lo.Index})
}

// TestPorts selects one of two ports.
func TestPorts(t *testing.T) {
	port := bound(t, unix.AF_INET, unix.SOCK_STREAM, loopback(0)) // free now
	for flag, want := range map[string]int{"-P": 1, "--port": 1, "-6": 0} {
		args := []string{"-p", me(), flag}
		if want == 1 {
			args = append(args, strconv.Itoa(port))
		}
		res := tooltest.JSON(t, Tool, args, func() {
			bound(t, unix.AF_INET, unix.SOCK_STREAM, loopback(port), [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR})
			bound(t, unix.AF_INET, unix.SOCK_DGRAM, loopback(0))
		})
		if len(res.Events) != want {
			t.Errorf("%q: %v, want %d", args, res.Events, want)
		}
	}
}

// TestCount counts binds to a port.
func TestCount(t *testing.T) {
	port := bound(t, unix.AF_INET, unix.SOCK_DGRAM, loopback(0))
	res := tooltest.JSON(t, Tool, []string{"--count", "-p", me()}, func() {
		for range 7 {
			bound(t, unix.AF_INET, unix.SOCK_DGRAM, loopback(port))
		}
	})
	rows := append(res.Events, res.Rows...)
	if len(rows) != 1 || rows[0].Num("count") != 7 || rows[0].Num("lport") != float64(port) || rows[0].Str("protocol") != "udp" {
		t.Errorf("rows %v, want one with count 7", rows)
	}
}

// TestCompat binds in a 32-bit program: with socketcall, whose arguments are in memory, and with
// bind itself.
func TestCompat(t *testing.T) {
	for _, direct := range []bool{false, true} {
		addr := []byte{unix.AF_INET, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
		prog := tooltest.I386(t, append(make([]byte, 12), addr...), func(at uint32) []byte {
			if direct {
				return append(tooltest.Call386(361, 3, at+12, 16), tooltest.Exit386()...)
			}
			code := store386(at, 3)
			code = append(code, store386(at+4, at+12)...)
			code = append(code, store386(at+8, 16)...)
			return append(append(code, tooltest.Call386(102, 2, at)...), tooltest.Exit386()...)
		})
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "socket")
		defer file.Close()
		child := exec.Command(prog)
		child.ExtraFiles = []*os.File{file}
		res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() { _ = child.Run() })
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == child.Process.Pid })
		tcptest.Fields(t, "bind", tcptest.One(t, "bind", rows), map[string]any{"lport": tcptest.BoundPort(t, fd), "laddr": "127.0.0.1", "protocol": "tcp"})
	}
}

// store386 returns the code that stores a word at an address.
func store386(at, word uint32) []byte {
	code := binary.LittleEndian.AppendUint32([]byte{0xc7, 0x05}, at) // mov dword [at], word
	return binary.LittleEndian.AppendUint32(code, word)
}

// TestUring binds with io_uring: once to a free port, once to the port in use.
func TestUring(t *testing.T) {
	tooltest.AnyAttachType(t)
	const opBind = 56
	u := tooltest.NewUring(t)
	do := func(port int) (got int, ret int32) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		to := &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: uint16(port>>8 | port&0xff<<8), Addr: [4]byte{127, 0, 0, 1}}
		defer runtime.KeepAlive(to)
		ret = u.Do(tooltest.UringSQE{Opcode: opBind, FD: int32(fd), Addr: uint64(uintptr(unsafe.Pointer(to))), Off: uint64(unsafe.Sizeof(*to))})
		if ret == 0 {
			got = tcptest.BoundPort(t, fd)
		}
		return got, ret
	}
	if _, ret := do(0); ret == -int32(unix.EINVAL) {
		t.Skip("io_uring of this kernel has no bind (before 6.11)")
	}
	var port int
	var ret int32
	res := tooltest.JSON(t, Tool, []string{"-x", "-p", me()}, func() {
		port, _ = do(0)
		_, ret = do(port)
	})
	if len(res.Events) != 2 || ret != -int32(unix.EADDRINUSE) {
		t.Fatalf("result %d, rows %v", ret, res.Events)
	}
	tcptest.Fields(t, "bind", res.Events[0], map[string]any{"ret": 0, "lport": port, "comm": tcptest.Comm()})
	tcptest.Fields(t, "failed bind", res.Events[1], map[string]any{"error": "EADDRINUSE", "lport": nil, "laddr": nil, "protocol": "tcp", "family": 4})
}

func TestText(t *testing.T) {
	var port int
	out := tooltest.Text(t, Tool, []string{"-t", "-U", "-p", me()}, func() {
		port = bound(t, unix.AF_INET, unix.SOCK_STREAM, loopback(0), [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR})
	})
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "TIME(s) UID PID COMM RET PROTO OPTS IF PORT ADDR" {
		t.Fatalf("%q", out)
	}
	f := strings.Fields(lines[1])
	if want := me() + " " + tcptest.Comm() + " 0 TCP ...R. 0 " + strconv.Itoa(port) + " 127.0.0.1"; strings.Join(f[2:], " ") != want {
		t.Errorf("%q, want %q", lines[1], want)
	}
}
