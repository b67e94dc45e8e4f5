package netqtop

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, map[string]func() error{"packets": packets}) }

// sizes are the payloads of the datagrams, each sent n times.
var sizes = [...]int{1, 400, 1000, 10000, 40000}

const n = 50

// packets sends datagrams to itself in its own network namespace, and prints the inode number of
// that namespace.
func packets() error {
	to, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := net.Dial("udp4", to.LocalAddr().String())
	if err != nil {
		return err
	}
	defer from.Close()
	buf := make([]byte, 1<<16)
	if mtu, err := net.InterfaceByName("lo"); err != nil || mtu.MTU < 50000 {
		return fmt.Errorf("interface lo has a small MTU: %v", err)
	}
	for _, size := range sizes {
		for range n {
			if _, err := from.Write(buf[:size]); err != nil {
				return err
			}
			if _, _, err := to.ReadFrom(buf); err != nil {
				return err
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return err
	}
	fmt.Println(st.Ino)
	return nil
}

// TestPackets compares with the sizes of datagrams that a process sends to itself.
func TestPackets(t *testing.T) {
	var netns int
	load := func() {
		cmd := tcptest.InRole("packets")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if _, err := fmt.Sscan(tcptest.Output(t, cmd), &netns); err != nil {
			t.Fatal(err)
		}
	}
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-n", "lo", "-i", "60"}, load)
	payload := 0
	for _, size := range sizes {
		payload += n * size
	}
	const headers, ethernet = 28, 14
	for direction, header := range map[string]int{"TX": headers + ethernet, "RX": headers} {
		rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("netns")) == netns && r.Str("direction") == direction })
		r := tcptest.One(t, direction, rows)
		tcptest.Fields(t, direction, r, map[string]any{
			"interface": "lo", "queue": 0, "packets": n * len(sizes), "bytes": payload + n*len(sizes)*header,
			"packets_below_64": n, "packets_below_512": n, "packets_below_2k": n, "packets_below_16k": n, "packets_below_64k": n, "packets_larger": 0,
		})
		if r.Num("avg_bytes") != r.Num("bytes")/r.Num("packets") {
			t.Errorf("mean of %v", r)
		}
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestName selects an interface that does not exist.
func TestName(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-n", "l", "-i", "60"}, func() {
		cmd := tcptest.InRole("packets")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		tcptest.Output(t, cmd)
	})
	if len(res.Rows) != 0 {
		t.Errorf("rows %v", res.Rows)
	}
}

func TestText(t *testing.T) {
	var netns string
	out := tooltest.TextUndisturbed(t, Tool, []string{"-n", "lo", "-t", "-i", "60", "--columns", "+netns"}, func() {
		cmd := tcptest.InRole("packets")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		netns = strings.TrimSpace(tcptest.Output(t, cmd))
	})
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[1]), " ") != "DIR DEV QueueID avg_size [0;64) [64;512) [512;2K) [2K;16K) [16K;64K) [64K;) BPS PPS NETNS" {
		t.Fatalf("%q", out)
	}
	found := 0
	for _, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != 13 || f[12] != netns {
			continue
		}
		found++
		if want := strings.Join([]string{"lo", "0", "10308.20", "50", "50", "50", "50", "50", "0"}, " "); f[0] == "RX" && strings.Join(f[1:10], " ") != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if found != 2 {
		t.Errorf("%d rows of namespace %s in %q, want 2", found, netns, out)
	}
}

// TestNoInterface checks that a name that no interface has is reported.
func TestNoInterface(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-n", "no-such-nic"}, func() {})
	if len(res.Rows) != 0 || !strings.Contains(res.Stderr, `no network interface of this network namespace is named "no-such-nic"`) {
		t.Errorf("%d rows, messages:\n%s", len(res.Rows), res.Stderr)
	}
}
