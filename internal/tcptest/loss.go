package tcptest

import (
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control calls f with the connection's descriptor.
func control(t testing.TB, c *net.TCPConn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctl := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctl != nil {
		err = ctl
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bpf_stmt of classic BPF.
const (
	loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	equals   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	returns  = unix.BPF_RET | unix.BPF_K
)

// Deafen makes a connection's end drop each segment that comes.
func Deafen(t testing.TB, c *net.TCPConn) {
	t.Helper()
	attach(t, c, []unix.SockFilter{{Code: returns}})
}

// DeafenTo makes it drop segments whose payload begins with the byte, where the header
// has the length that it has with timestamps.
func DeafenTo(t testing.TB, c *net.TCPConn, first byte) {
	t.Helper()
	const dataOffset, withTimestamps = 12, 8 << 4
	attach(t, c, []unix.SockFilter{
		{Code: loadByte, K: dataOffset},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf0},
		{Code: equals, K: withTimestamps, Jf: 3},
		{Code: loadByte, K: 32}, // out of bounds without payload: dropped too, as an ACK alone
		{Code: equals, K: uint32(first), Jf: 1},
		{Code: returns},
		{Code: returns, K: 1 << 18},
	})
}

func attach(t testing.TB, c *net.TCPConn, filter []unix.SockFilter) {
	t.Helper()
	control(t, c, func(fd int) error {
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
	})
}

// Hear takes back what Deafen or DeafenTo did.
func Hear(t testing.TB, c *net.TCPConn) {
	t.Helper()
	control(t, c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
}

// Retransmits is how many segments the connection has sent again.
func Retransmits(t testing.TB, c *net.TCPConn) int {
	t.Helper()
	var n int
	control(t, c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = int(info.Total_retrans)
		}
		return err
	})
	return n
}

// AwaitRetransmits returns when the connection has sent n segments again.
func AwaitRetransmits(t testing.TB, c *net.TCPConn, n int) {
	t.Helper()
	for Retransmits(t, c) < n && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
