package tcpconnect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// receive386 receives from descriptors 3, 4 and 5: with recv and recvmsg of socketcall, and with
// read. The data that these point to follows the code.
func receive386(data uint32) []byte {
	tables := func(at uint32) []byte {
		var b []byte
		for _, word := range []uint32{
			3, data, 256, 0, // at: recv
			4, at + 28, 0, // at+16: recvmsg
			0, 0, at + 56, 1, 0, 0, 0, // at+28: struct msghdr
			data, 256, // at+56: struct iovec
		} {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
		return b
	}
	at := data - uint32(len(tables(0)))
	code := append(tooltest.Call386(102, 10, at), tooltest.Call386(102, 17, at+16)...)
	code = append(append(code, tooltest.Call386(3, 5, data, 256)...), tooltest.Exit386()...)
	return append(code, tables(at)...)
}

// names386Role receives three answers in a 32-bit program, and connects to the addresses in them.
func names386Role() error {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Getenv("PROG386"))
	for i := range 3 {
		client, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		file, err := client.File()
		if err != nil {
			return err
		}
		answer := reply(1, fmt.Sprintf("old%d.test.", i), dnsmessage.TypeA, fmt.Sprintf("127.0.3.%d", i))
		if _, err := conn.WriteTo(answer, client.LocalAddr()); err != nil {
			return err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	if err := cmd.Run(); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := net.Dial("tcp", fmt.Sprintf("127.0.3.%d:9", i)); !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
	return nil
}

// TestNamesCompat checks 32-bit tasks, which have other system call numbers and structures; their
// answers apply to all processes.
func TestNamesCompat(t *testing.T) {
	prog := tooltest.I386(t, make([]byte, 256), receive386)
	child := tcptest.InRole("names386", "PROG386="+prog)
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	res := tooltest.JSON(t, Tool, []string{"-d"}, func() { tcptest.Output(t, child) })
	for i := range 3 {
		rows := res.Where(func(r tooltest.Row) bool { return r.Str("raddr") == fmt.Sprintf("127.0.3.%d", i) })
		tcptest.Fields(t, "answer", tcptest.One(t, "answer", rows), map[string]any{"name": fmt.Sprintf("old%d.test", i)})
	}
}
