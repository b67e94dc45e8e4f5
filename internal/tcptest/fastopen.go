package tcptest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FastOpen connects to a port of the loopback with TCP_FASTOPEN_CONNECT, waits, and sends,
// which is what sends the SYN. It returns the local port and when it began to send, and the
// error of sending. The socket is closed when the test is over, or by the returned function.
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
	const idle = 60 * time.Millisecond // to see that it does not count
	time.Sleep(idle)
	sent = time.Now()
	_, err = unix.Write(fd, []byte("fast"))
	name, nameErr := unix.Getsockname(fd)
	if nameErr != nil {
		t.Fatal(nameErr)
	}
	return name.(*unix.SockaddrInet4).Port, sent, func() error { return unix.Close(fd) }, err
}
