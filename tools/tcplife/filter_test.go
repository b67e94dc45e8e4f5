package tcplife

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// freePort returns an unused port.
func freePort(t testing.TB) int {
	t.Helper()
	l := tcptest.Listen(t, "127.0.0.1:0")
	defer l.Close()
	return tcptest.Port(l.Addr())
}

// TestPorts filters by each port of each end.
func TestPorts(t *testing.T) {
	tooltest.AnyAttachType(t)
	for _, c := range []struct {
		name           string
		args           func(lport, rport string) []string
		client, server int
	}{
		{"local port of the client", func(l, _ string) []string { return []string{"-L", l} }, 1, 0},
		{"local port of the server", func(_, r string) []string { return []string{"-L", r} }, 0, 1},
		{"remote port of the client", func(_, r string) []string { return []string{"-D", r} }, 1, 0},
		{"remote port of the server", func(l, _ string) []string { return []string{"-D", l} }, 0, 1},
		{"list", func(l, r string) []string { return []string{"-L", "1," + l + ",65535", "-D", r + ",0"} }, 1, 0},
		{"both local ports", func(l, r string) []string { return []string{"-L", l, "-L", r} }, 1, 1},
		{"neither", func(_, _ string) []string { return []string{"-L", "1"} }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := tcptest.Listen(t, "127.0.0.1:0")
			lport := freePort(t)
			var p *tcptest.Pair
			res := tooltest.JSON(t, Tool, c.args(strconv.Itoa(lport), strconv.Itoa(tcptest.Port(l.Addr()))), func() {
				p = tcptest.Connect(t, l, "127.0.0.1", lport)
				p.Fin(p.Client, p.Server)
			})
			client, server := p.Rows(res)
			if len(client) != c.client || len(server) != c.server || len(res.Events) != c.client+c.server {
				t.Errorf("%d rows of the client's end and %d of the server's, %d in total, want %d and %d",
					len(client), len(server), len(res.Events), c.client, c.server)
			}
			for _, r := range res.Events {
				tcptest.Fields(t, c.name, r, map[string]any{"pid": os.Getpid()})
			}
		})
	}
}

// TestFamily filters by the protocol on the wire.
func TestFamily(t *testing.T) {
	tooltest.AnyAttachType(t)
	for flag, want := range map[string][3]int{"-4": {2, 0, 2}, "-6": {0, 2, 0}} {
		var pairs [3]*tcptest.Pair
		res := tooltest.JSON(t, Tool, []string{flag}, func() {
			any := tcptest.Listen(t, "[::]:0")
			pairs[0] = tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
			pairs[1] = tcptest.Connect(t, any, "::1", 0)
			pairs[2] = tcptest.Connect(t, any, "127.0.0.1", 0)
			for _, p := range pairs {
				p.Fin(p.Server, p.Client)
			}
		})
		for i, p := range pairs {
			client, server := p.Rows(res)
			if n := len(client) + len(server); n != want[i] {
				t.Errorf("%s: %d rows of connection %d, want %d", flag, n, i, want[i])
			}
		}
	}
}

// TestPID filters by the owner, which is unknown at the start of the accepting end.
func TestPID(t *testing.T) {
	var connected, accepted *tcptest.Pair
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, func() {
		_, connected = childConnects(t, tcptest.Listen(t, "127.0.0.1:0"), nil)
		_, accepted = childAccepts(t, tcptest.Listen(t, "127.0.0.1:0"))
	})
	c, s := connected.Rows(res)
	if len(c) != 0 || len(s) != 1 {
		t.Errorf("connection of another process: %d rows of its end and %d of ours, want 0 and 1", len(c), len(s))
	}
	c, s = accepted.Rows(res)
	if len(c) != 1 || len(s) != 0 {
		t.Errorf("connection to another process: %d rows of our end and %d of its, want 1 and 0", len(c), len(s))
	}
}

// TestCgroup filters by the cgroup of the owner.
func TestCgroup(t *testing.T) {
	tooltest.OnHooks(t, "accept")
	dir := tooltest.Cgroup(t, "cgroup2", fmt.Sprintf("corescope-tcplife-%d", os.Getpid()))
	var inside, outside *tcptest.Pair
	res := tooltest.JSON(t, Tool, []string{"--cgroup", dir}, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		_, outside = childConnects(t, l, nil)
		_, inside = childConnects(t, l, func(child *exec.Cmd) *exec.Cmd {
			cmd := tooltest.InCgroup(dir, child.Path)
			cmd.Env = child.Env
			return cmd
		})
	})
	c, _ := inside.Rows(res)
	tcptest.One(t, "client in the cgroup", c)
	if c, s := outside.Rows(res); len(c)+len(s) > 0 || len(res.Events) != 1 {
		t.Errorf("%d rows, want 1: %v", len(res.Events), res.Events)
	}
}

// TestNetNS checks a connection in another network namespace.
func TestNetNS(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := &tcptest.Pair{T: t}
	var inode int
	res := tooltest.JSON(t, Tool, nil, func() {
		cmd := tcptest.InRole("netns")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if _, err := fmt.Sscan(tcptest.Output(t, cmd), &p.LPort, &p.RPort, &inode); err != nil {
			t.Fatal(err)
		}
	})
	client, server := p.Rows(res)
	tcptest.Fields(t, "client", tcptest.One(t, "client", client), map[string]any{"netns": inode})
	tcptest.Fields(t, "server", tcptest.One(t, "server", server), map[string]any{"netns": inode})
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil || int(st.Ino) == inode {
		t.Errorf("namespace of the child is %d, ours %d (%v)", inode, st.Ino, err)
	}
}
