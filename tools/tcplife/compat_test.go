package tcplife

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestCompat accepts in 32-bit programs, with each of their system calls. The connections are reset
// while the programs read, so that the owner cannot come from closing.
func TestCompat(t *testing.T) {
	tooltest.OnHooks(t, "accept")
	args := binary.LittleEndian.AppendUint32(nil, 3)
	args = append(args, make([]byte, 12)...)
	for name, accept := range map[string]func(data uint32) []byte{
		"accept by socketcall": func(data uint32) []byte { return tooltest.Call386(102, 5, data) },
		"accept4":              func(uint32) []byte { return tooltest.Call386(364, 3, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			prog := tooltest.I386(t, args, func(data uint32) []byte {
				code := accept(data)
				code = append(code, tooltest.Call386(4, 4, data+12, 1)...)
				code = append(code, tooltest.Call386(3, 4, data+12, 1)...)
				return append(code, tooltest.Exit386()...)
			})
			child := exec.Command(prog)
			var p *tcptest.Pair
			res := tooltest.JSON(t, Tool, nil, func() { p = resetChild(t, child) })
			_, server := p.Rows(res)
			tcptest.Fields(t, name, tcptest.One(t, name, server), map[string]any{
				"pid": child.Process.Pid, "comm": "prog386", "tcp_state": "ESTABLISHED", "error": "ECONNRESET",
			})
		})
	}
}

// resetChild connects to a program that accepts on its descriptor 3 and sends a byte.
func resetChild(t testing.TB, child *exec.Cmd) *tcptest.Pair {
	t.Helper()
	l := tcptest.Listen(t, "127.0.0.1:0")
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Go listeners are non-blocking.
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetNonblock(int(fd), false) })
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p := &tcptest.Pair{T: t, Client: tcptest.Dial(t, l.Addr().String(), 0), RPort: tcptest.Port(l.Addr())}
	p.LPort = tcptest.Port(p.Client.LocalAddr())
	_, err = io.ReadFull(p.Client, make([]byte, 1))
	p.Check(err)
	p.Check(p.Client.SetLinger(0))
	p.Check(p.Client.Close())
	child.Wait()
	p.AwaitEnd()
	return p
}
