package tcptest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FastOpen connects to a loopback port with TCP_FASTOPEN_CONNECT, waits, and then sends data. Only
// the send transmits the SYN. It returns the local port, the time before the send, and the error of
// the send. The caller closes the socket with closeSocket.
func FastOpen(t testing.TB, port int) (lport int, sent time.Time, closeSocket func() error, err error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_NO_COOKIE, 1),
	)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		unix.Close(fd)
		return 0, sent, nil, fmt.Errorf("connect with TCP_FASTOPEN_CONNECT: %w", err)
	}
	const idle = 60 * time.Millisecond // must not be part of the measured connection time
	time.Sleep(idle)
	sent = time.Now()
	_, err = unix.Write(fd, []byte("fast"))
	name, nameErr := unix.Getsockname(fd)
	if nameErr != nil {
		t.Fatal(nameErr)
	}
	return name.(*unix.SockaddrInet4).Port, sent, func() error { return unix.Close(fd) }, err
}
