package tcpaccept

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) {
	tcptest.Main(m, map[string]func() error{"netns": netnsRole})
}

// netnsRole accepts its own connection in its network namespace, and prints the port of the
// listener.
func netnsRole() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err != nil {
		return err
	}
	if _, err := l.Accept(); err != nil {
		return err
	}
	fmt.Println(tcptest.Port(l.Addr()))
	return nil
}

// at returns the rows of a listener's port.
func at(res *tooltest.Result, lport int) []tooltest.Row {
	return res.Where(func(r tooltest.Row) bool { return int(r.Num("lport")) == lport })
}

// TestAccept checks one row per accepted connection, and no other.
func TestAccept(t *testing.T) {
	for _, c := range []struct {
		listen, host string
		family       int
	}{{"127.0.0.1:0", "127.0.0.1", 4}, {"[::1]:0", "::1", 6}, {"[::]:0", "127.0.0.1", 4}} {
		var p *tcptest.Pair
		res := tooltest.JSON(t, Tool, nil, func() {
			p = tcptest.Connect(t, tcptest.Listen(t, c.listen), c.host, 0)
			tcptest.Dial(t, net.JoinHostPort(c.host, strconv.Itoa(p.RPort)), 0)
			p.Fin(p.Client, p.Server)
		})
		r := tcptest.One(t, c.listen, at(res, p.RPort))
		tcptest.Fields(t, c.listen, r, map[string]any{
			"pid": os.Getpid(), "comm": tcptest.Comm(), "laddr": c.host, "raddr": c.host,
			"rport": p.LPort, "family": c.family, "backlog": 0, "backlog_max": somaxconn(t),
		})
	}
}

func somaxconn(t *testing.T) int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return min(n, 1<<16-1)
}

// TestQueue accepts waiting connections one after another, from a listener with a backlog of 5.
func TestQueue(t *testing.T) {
	const n = 5
	var port int
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		port = tcptest.Port(l.Addr())
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), n) })
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			tcptest.Dial(t, l.Addr().String(), 0)
		}
		for range n {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	})
	rows := at(res, port)
	if len(rows) != n {
		t.Fatalf("%d rows, want %d: %v", len(rows), n, rows)
	}
	for i, r := range rows {
		tcptest.Fields(t, "accept "+strconv.Itoa(i), r, map[string]any{"backlog": n - 1 - i, "backlog_max": n})
	}
}

// TestFilters counts the rows of one connection per IP version.
func TestFilters(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args func(port4, port6 string) []string
		want [2]int
	}{
		{func(_, _ string) []string { return []string{"-4", "-p", me} }, [2]int{1, 0}},
		{func(_, _ string) []string { return []string{"-6"} }, [2]int{0, 1}},
		{func(l, _ string) []string { return []string{"-P", "1," + l} }, [2]int{1, 0}},
		{func(l, r string) []string { return []string{"--port", l, "--port", r} }, [2]int{1, 1}},
		{func(_, _ string) []string { return []string{"--pid", "1"} }, [2]int{}},
	} {
		l4, l6 := tcptest.Listen(t, "127.0.0.1:0"), tcptest.Listen(t, "[::1]:0")
		port4, port6 := tcptest.Port(l4.Addr()), tcptest.Port(l6.Addr())
		args := c.args(strconv.Itoa(port4), strconv.Itoa(port6))
		res := tooltest.JSON(t, Tool, args, func() {
			tcptest.Connect(t, l4, "127.0.0.1", 0)
			tcptest.Connect(t, l6, "::1", 0)
		})
		if got := [2]int{len(at(res, port4)), len(at(res, port6))}; got != c.want {
			t.Errorf("%q: %d rows, want %d", args, got, c.want)
		}
	}
}

// TestNetNS accepts in another process and another network namespace.
func TestNetNS(t *testing.T) {
	var lport int
	cmd := tcptest.InRole("netns")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	res := tooltest.JSON(t, Tool, nil, func() {
		if _, err := fmt.Sscan(tcptest.Output(t, cmd), &lport); err != nil {
			t.Fatal(err)
		}
	})
	rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == cmd.Process.Pid })
	r := tcptest.One(t, "accept", rows)
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	if int(r.Num("lport")) != lport || uint64(r.Num("netns")) == st.Ino {
		t.Errorf("port %d, row %v", lport, r)
	}
}

// TestCompat accepts in a 32-bit program with socketcall, whose arguments are in memory.
func TestCompat(t *testing.T) {
	args := binary.LittleEndian.AppendUint32(nil, 3)
	args = append(args, make([]byte, 12)...)
	prog := tooltest.I386(t, args, func(data uint32) []byte {
		return append(tooltest.Call386(102, 5, data), tooltest.Exit386()...)
	})
	child := exec.Command(prog)
	var port int
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		port = tcptest.Port(l.Addr())
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		child.ExtraFiles = []*os.File{f}
		tcptest.Dial(t, l.Addr().String(), 0)
		_ = child.Run()
	})
	tcptest.Fields(t, "accept", tcptest.One(t, "accept", at(res, port)), map[string]any{
		"pid": child.Process.Pid, "comm": "prog386", "backlog": 0, "backlog_max": somaxconn(t),
	})
}

// TestMany checks that each of many connections is shown or counted as lost.
func TestMany(t *testing.T) {
	const n = 2000
	var port int
	res := tooltest.JSON(t, Tool, nil, func() { port = tcptest.Resets(t, n) })
	tooltest.CheckTotal(t, res.Summary, len(at(res, port)), n)
}

// TestText checks the columns of text and CSV.
func TestText(t *testing.T) {
	var p *tcptest.Pair
	load := func() { p = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0) }
	for _, c := range []struct {
		args             []string
		header, sep, row string
	}{
		{[]string{"-T", "-t"}, "TIME TIME(s) PID COMM IP RADDR RPORT LADDR LPORT", " ", " %d %s 4 127.0.0.1 %d 127.0.0.1 %d\n"},
		{[]string{"--output", "csv", "--columns", "pid,comm,family,raddr,rport,laddr,lport"}, "pid,comm,family,raddr,rport,laddr,lport", ",",
			"\n%d,%s,4,127.0.0.1,%d,127.0.0.1,%d\n"},
	} {
		out := tooltest.Text(t, Tool, c.args, load)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " ")+"\n")
		}
		want := fmt.Sprintf(c.row, os.Getpid(), tcptest.Comm(), p.LPort, p.RPort)
		if lines[0] != c.header+"\n" || !strings.Contains(strings.Join(lines, ""), want) {
			t.Errorf("%q: %q is missing in %q", c.args, want, lines)
		}
	}
}
