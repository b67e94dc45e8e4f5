package tcplife

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
)

func TestMain(m *testing.M) {
	tcptest.Main(m, map[string]func() error{"client": clientRole, "server": serverRole, "netns": netnsRole, "subflows": subflowsRole})
}

// clientRole connects to CORESCOPE_ADDR, sends, reads the answer until the end and closes. It
// prints its port.
func clientRole() error {
	c, err := net.Dial("tcp", os.Getenv("CORESCOPE_ADDR"))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return err
	}
	fmt.Println(tcptest.Port(c.LocalAddr()))
	return nil
}

// serverRole accepts one connection of the listener at descriptor 3, answers and closes before the
// client does.
func serverRole() error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte("welcome")); err != nil {
		return err
	}
	return c.Close()
}

// netnsRole connects to itself in its network namespace. It prints its ports and the inode number
// of the namespace.
func netnsRole() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	s, err := l.Accept()
	if err != nil {
		return err
	}
	if err := errors.Join(c.Close(), s.Close(), tcptest.AwaitEnd(context.Background(), tcptest.Port(c.LocalAddr()))); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return err
	}
	fmt.Println(tcptest.Port(c.LocalAddr()), tcptest.Port(l.Addr()), st.Ino)
	return nil
}
