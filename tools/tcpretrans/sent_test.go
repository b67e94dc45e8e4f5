package tcpretrans

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// roles are the processes of the following tests.
var roles = map[string]func() error{"queued": queued, "refused": refused}

// retransSegs returns RetransSegs of this network namespace.
func retransSegs() (int, error) {
	b, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[0] != "Tcp:" {
			continue
		}
		if i := slices.Index(names, "RetransSegs"); i >= 0 {
			return strconv.Atoi(f[i])
		}
		names = f
	}
	return 0, errors.New("no RetransSegs in /proc/self/net/snmp")
}

// netNS returns the network namespace of this process, as shown in rows.
func netNS() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &st)
	return st.Ino, err
}

// queued connects to a host that does not answer ARP, in its own network namespace: the SYN waits
// in a queue of this host when the timer tries to retransmit it. It also loses segments of another
// connection. It prints its namespace and the number of retransmitted segments according to the
// kernel.
func queued() error {
	device, err := tcptest.SilentDevice()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		fmt.Println("skip", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer device.Close()
	if err := waitInQueue(); err != nil {
		return err
	}
	if err := loseMany(); err != nil {
		return err
	}
	n, err := retransSegs()
	if err != nil {
		return err
	}
	ns, err := netNS()
	fmt.Println(ns, n)
	return err
}

// waitInQueue connects until the timer has expired once.
func waitInQueue() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := unix.SockaddrInet4{Port: 9, Addr: [4]byte(net.ParseIP(tcptest.SilentHost).To4())}
	if err := unix.Connect(fd, &to); err != unix.EINPROGRESS {
		return fmt.Errorf("connect to a host that does not answer: %v", err)
	}
	for {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Retransmits > 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// loseMany drops all segments of a connection with a small MSS until they are retransmitted,
// several at once.
func loseMany() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	const mss, bytes = 500, 40 * 500
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, mss) })
		return err
	}}
	d.SetMultipathTCP(false)
	client, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := tcptest.Filter(server.(*net.TCPConn), tcptest.DropAll); err != nil {
		return err
	}
	if _, err := client.Write(make([]byte, bytes)); err != nil {
		return err
	}
	for n := 0; n < 2; {
		if n, err = tcptest.TotalRetrans(client.(*net.TCPConn)); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	if err := tcptest.RemoveFilter(server.(*net.TCPConn)); err != nil {
		return err
	}
	_, err = io.ReadFull(server, make([]byte, bytes))
	return err
}

// TestSegments compares the sum of segments in a network namespace with its RetransSegs. Abandoned
// retransmissions are shown only with --unsent.
func TestSegments(t *testing.T) {
	for _, args := range [][]string{nil, {"--unsent"}} {
		var out string
		res := tooltest.JSON(t, Tool, args, func() {
			cmd := tcptest.InRole("queued")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
			out = tcptest.Output(t, cmd)
		})
		if reason, ok := strings.CutPrefix(out, "skip "); ok {
			t.Skip(reason)
		}
		var ns, want int
		if _, err := fmt.Sscan(out, &ns, &want); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("netns")) == ns })
		_, segments := causesOf(rows)
		segments += int(res.Summary.Object("reasons").Num("unobserved"))
		if segments != want || want < 2 {
			t.Errorf("%q: %d segments in %d rows and lost, RetransSegs is %d: %v", args, segments, len(rows), want, rows)
		}
		checkUnsent(t, res, rows, args != nil)
	}
}

// checkUnsent looks for the SYN that waited in the queue.
func checkUnsent(t *testing.T, res *tooltest.Result, rows []tooltest.Row, wanted bool) {
	t.Helper()
	unsent := res.Summary.Object("counters").Num("unsent")
	busy := slices.DeleteFunc(slices.Clone(rows), func(r tooltest.Row) bool { return r.Str("error") != "EBUSY" })
	if unsent == 0 {
		t.Logf("the kernel does not report abandoned retransmissions")
	} else if wanted != (len(busy) > 0) {
		t.Errorf("%d rows of EBUSY, %v counted", len(busy), unsent)
	}
	for _, r := range busy {
		tcptest.Fields(t, "unsent", r, map[string]any{"raddr": tcptest.SilentHost, "segments": 0, "tcp_state": "SYN_SENT"})
	}
}

// refused sends to a server that does not receive it. It prints the local port, and the number of
// retransmitted segments after a line on standard input.
func refused() error {
	c, err := net.Dial("tcp4", os.Getenv("CORESCOPE_ADDR"))
	if err != nil {
		return err
	}
	client := c.(*net.TCPConn)
	in := bufio.NewReader(os.Stdin)
	fmt.Println(tcptest.Port(client.LocalAddr()))
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if _, err := client.Write(make([]byte, 1000)); err != nil {
		return err
	}
	fmt.Println("sent")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	before, err := tcptest.TotalRetrans(client)
	n := before
	for ; n < before+2 && err == nil; n, err = tcptest.TotalRetrans(client) {
		time.Sleep(time.Millisecond)
	}
	client.SetLinger(0)
	client.Close()
	fmt.Println(n)
	return err
}

// TestRefused rejects segments with a program of the cgroup: the kernel counts these
// retransmissions. They are rows or, before 6.17, lost.
func TestRefused(t *testing.T) {
	dir := tooltest.Cgroup(t, "cgroup2", "corescope-tcpretrans-refused")
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSKB, AttachType: ebpf.AttachCGroupInetEgress, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drop.Close()
	var p tcptest.Pair
	var want int
	res := tooltest.JSON(t, Tool, nil, func() { p, want = refuse(t, dir, drop) })
	rows, _ := p.Rows(res)
	_, segments := causesOf(rows)
	unseen := int(res.Summary.Object("reasons").Num("unobserved"))
	if segments+unseen != want {
		t.Errorf("%d segments in rows and %d lost, want %d: %v", segments, unseen, want, rows)
	}
	refused := slices.ContainsFunc(rows, func(r tooltest.Row) bool { return r.Str("error") == "EPERM" })
	if !refused && unseen == 0 {
		t.Errorf("no row of EPERM and nothing lost: %v", rows)
	}
}

// refuse makes a process of the cgroup retransmit segments that the program rejects. It returns the
// number of segments that the kernel counts.
func refuse(t *testing.T, dir string, drop *ebpf.Program) (p tcptest.Pair, segments int) {
	t.Helper()
	l := tcptest.Listen(t, "127.0.0.1:0")
	role := tcptest.InRole("refused")
	cmd := tooltest.InCgroup(dir, role.Path)
	cmd.Env = append(role.Env, "CORESCOPE_ADDR="+l.Addr().String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	server, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	tcptest.DropReceived(t, server)
	p = tcptest.Pair{T: t, RPort: tcptest.Port(l.Addr())}
	fmt.Fscanln(stdout, &p.LPort)
	fmt.Fprintln(stdin)
	fmt.Fscanln(stdout, new(string))
	egress, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupInetEgress, Program: drop})
	if err != nil {
		t.Fatal(err)
	}
	defer egress.Close()
	fmt.Fprintln(stdin)
	fmt.Fscanln(stdout, &segments)
	return p, segments
}
