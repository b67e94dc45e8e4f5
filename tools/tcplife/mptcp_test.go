package tcplife

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// subflowsRole connects to itself with MPTCP, waits for the second subflow, and closes. It prints
// the port of the listener.
func subflowsRole() error {
	if err := tcptest.AddSubflows(netip.MustParseAddr("127.0.0.2")); err != nil {
		fmt.Println("skip", err)
		return nil
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(true)
	client, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		return err
	}
	server, err := l.Accept()
	if err != nil {
		return err
	}
	if _, err := client.Write([]byte("x")); err != nil {
		return err
	}
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		return err
	}
	port := tcptest.Port(l.Addr())
	if err := tcptest.AwaitEstablished(port, 4); err != nil {
		return err
	}
	fmt.Println(port)
	return errors.Join(client.Close(), server.Close(), tcptest.AwaitEnd(context.Background(), port))
}

// TestSubflows checks the owner of each subflow of an MPTCP connection: the process that holds the
// connection, although the kernel creates the second one.
func TestSubflows(t *testing.T) {
	cmd := tcptest.InRole("subflows")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	var out string
	res := tooltest.JSON(t, Tool, nil, func() { out = tcptest.Output(t, cmd) })
	if reason, ok := strings.CutPrefix(out, "skip "); ok {
		t.Skip(reason)
	}
	var port int
	if _, err := fmt.Sscan(out, &port); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	rows := res.Where(func(r tooltest.Row) bool {
		return int(r.Num("lport")) == port || int(r.Num("rport")) == port
	})
	if len(rows) != 4 {
		t.Errorf("%d rows, want two of each subflow: %v", len(rows), rows)
	}
	for _, r := range rows {
		tcptest.Fields(t, "subflow", r, map[string]any{"pid": cmd.Process.Pid, "comm": tcptest.Comm()})
	}
}
