package rdmaucma

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// Commands of /dev/infiniband/rdma_cm: see include/uapi/rdma/rdma_user_cm.h.
const (
	createID  = 0
	resolveIP = 3
	getEvent  = 12
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

// call writes a command with its structure, and reports whether that worked.
func call(t *testing.T, fd int, command uint32, out uint16, body any) (ok bool) {
	t.Helper()
	var b, text bytes.Buffer
	_ = binary.Write(&text, binary.NativeEndian, body)
	_ = binary.Write(&b, binary.NativeEndian, struct {
		Command uint32
		In, Out uint16
	}{command, uint16(text.Len()), out})
	b.Write(text.Bytes())
	_, err := unix.Write(fd, b.Bytes())
	if err == unix.ENODEV {
		return false
	}
	if err != nil {
		t.Errorf("command %d: %v", command, err)
	}
	return err == nil
}

// loopback returns a struct sockaddr_in6 with the address 127.0.0.1 and this port.
func loopback(port uint16) (a [28]byte) {
	binary.NativeEndian.PutUint16(a[:], unix.AF_INET)
	binary.BigEndian.PutUint16(a[2:], port)
	copy(a[4:], []byte{127, 0, 0, 1})
	return a
}

// TestResolve resolves an address that no RDMA device has, and compares the row with the event that
// the program receives.
func TestResolve(t *testing.T) {
	fd := device(t)
	var event struct {
		UID               uint64
		ID, Event, Status uint32
		Rest              [128]uint32
	}
	hasDevice := false
	res := tooltest.JSON(t, Tool, nil, func() {
		var id uint32
		call(t, fd, createID, 4, struct {
			UID, Response uint64
			Space         uint16
			Type          uint8
			_             [5]uint8
		}{1, uint64(uintptr(unsafe.Pointer(&id))), 0x0106, 2, [5]uint8{}})
		hasDevice = call(t, fd, resolveIP, 0, struct {
			From, To    [28]byte
			ID, Timeout uint32
		}{[28]byte{}, loopback(4711), id, 1000})
		if !hasDevice {
			return
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000); n != 1 {
			t.Errorf("no event: %v", err)
			return
		}
		call(t, fd, getEvent, 400, struct{ Response uint64 }{uint64(uintptr(unsafe.Pointer(&event)))})
	})
	if !hasDevice && len(res.Events) == 0 {
		t.Skip("the machine has no RDMA device, so that the connection manager refuses addresses (ENODEV)")
	}
	if len(res.Events) != 1 {
		t.Fatalf("rows %v, want one", res.Events)
	}
	r := res.Events[0]
	if r.Str("event") != events[event.Event] || r.Num("status") != float64(int32(event.Status)) || r.Num("family") != 4 ||
		r.Str("raddr") != "127.0.0.1" || r.Num("rport") != 4711 || r.Str("port_space") != "tcp" {
		t.Errorf("row %v, the program received event %d with status %d", r, event.Event, int32(event.Status))
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
