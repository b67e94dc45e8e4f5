package tcptest

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// control calls f with the file descriptor of the connection.
func control(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if ctl := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctl != nil {
		err = ctl
	}
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Opcodes of classic BPF.
const (
	loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	equals   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	returns  = unix.BPF_RET | unix.BPF_K
)

// DropAll is a filter that drops all received segments.
var DropAll = []unix.SockFilter{{Code: returns}}

// DropReceived makes an end of a connection drop all received segments.
func DropReceived(t testing.TB, c *net.TCPConn) {
	t.Helper()
	must(t, Filter(c, DropAll))
}

// DropPayload makes an end of a connection drop received segments whose payload starts with the
// given byte. It applies to segments whose only TCP option is the timestamp, and also drops such
// segments without payload.
func DropPayload(t testing.TB, c *net.TCPConn, first byte) {
	t.Helper()
	const dataOffset, withTimestamps = 12, 8 << 4
	must(t, Filter(c, []unix.SockFilter{
		{Code: loadByte, K: dataOffset},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf0},
		{Code: equals, K: withTimestamps, Jf: 3},
		{Code: loadByte, K: 32}, // out of bounds without payload: the filter then drops the ACK
		{Code: equals, K: uint32(first), Jf: 1},
		{Code: returns},
		{Code: returns, K: 1 << 18},
	}))
}

// Filter makes an end of a connection drop the received segments for which the filter returns 0.
func Filter(c *net.TCPConn, filter []unix.SockFilter) error {
	return control(c, func(fd int) error {
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
	})
}

// RemoveFilter removes the filter.
func RemoveFilter(c *net.TCPConn) error {
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
}

// StopDropping removes the filter of DropReceived or DropPayload.
func StopDropping(t testing.TB, c *net.TCPConn) {
	t.Helper()
	must(t, RemoveFilter(c))
}

// TotalRetrans returns the kernel's count of retransmitted segments (tcpi_total_retrans).
func TotalRetrans(c *net.TCPConn) (n int, err error) {
	err = control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = int(info.Total_retrans)
		}
		return err
	})
	return n, err
}

// Retransmits is TotalRetrans, but fails the test on an error.
func Retransmits(t testing.TB, c *net.TCPConn) int {
	t.Helper()
	n, err := TotalRetrans(c)
	must(t, err)
	return n
}

// AwaitRetransmits waits until the connection has retransmitted n segments.
func AwaitRetransmits(t testing.TB, c *net.TCPConn, n int) {
	t.Helper()
	for Retransmits(t, c) < n && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
