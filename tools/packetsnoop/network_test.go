package packetsnoop

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
)

func TestMain(m *testing.M) {
	tcptest.Main(m, map[string]func() error{"near": near, "far": far, "share": share})
}

// The two ends of a veth pair, each in a network namespace of its own.
const (
	nearName, farName = "near0", "far0"
	port              = 7777
)

// addrs are the addresses of the far end, by family. Those of the near end are the ones before.
func addrs() map[string]string {
	return map[string]string{"4": "192.0.2.2", "6": "[fd00:2::2]"}
}

// request is the payload that the near end sends, and answer that of the far end.
func request(protocol, family string) string { return "request-" + protocol + family + "-0123456789" }
func answer(protocol, family string) string  { return "answer-" + protocol + family }

// near runs in a new network namespace. It creates the pair and exchanges payloads with the far end.
// It prints its PID and network namespace, and those of the far end.
func near() error {
	cmd := tcptest.InRole("far")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Process.Kill()
	if err := createPair(cmd.Process.Pid); err != nil {
		return err
	}
	if err := configure(nearName, 1); err != nil {
		return err
	}
	fmt.Fprintln(in)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return errors.New("the far end has failed")
	}
	for _, protocol := range []string{"tcp", "udp"} {
		for family, addr := range addrs() {
			if err := exchange(protocol, family, addr); err != nil {
				return fmt.Errorf("%s over IPv%s: %w", protocol, family, err)
			}
		}
	}
	ns, err := netns()
	if err != nil {
		return err
	}
	fmt.Println(os.Getpid(), ns, lines.Text())
	in.Close()
	return cmd.Wait()
}

func exchange(protocol, family, addr string) error {
	c, err := net.DialTimeout(protocol, fmt.Sprintf("%s:%d", addr, port), time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request(protocol, family)); err != nil {
		return err
	}
	want := answer(protocol, family)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("received %q, want %q", got, want)
	}
	return nil
}

// far answers requests until its input ends.
func far() error {
	in := bufio.NewScanner(os.Stdin)
	in.Scan() // the pair exists
	if err := configure(farName, 2); err != nil {
		return err
	}
	for family := range addrs() {
		l, err := net.Listen("tcp"+family, fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		u, err := net.ListenPacket("udp"+family, fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				io.ReadFull(c, make([]byte, len(request("tcp", family))))
				io.WriteString(c, answer("tcp", family))
			}
		}()
		go func() {
			b := make([]byte, 1<<16)
			if _, from, err := u.ReadFrom(b); err == nil {
				u.WriteTo([]byte(answer("udp", family)), from)
			}
		}()
	}
	ns, err := netns()
	if err != nil {
		return err
	}
	fmt.Println(os.Getpid(), ns)
	in.Scan()
	return nil
}

// netns returns the inode number of the network namespace.
func netns() (uint32, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &st)
	return uint32(st.Ino), err
}

// attr is an attribute of a netlink message; body can consist of attributes.
func attr(kind uint16, body ...[]byte) []byte {
	var all []byte
	for _, b := range body {
		all = append(all, b...)
	}
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(all)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), all...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func words(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// netlink sends a request that creates something, and returns its error.
func netlink(kind uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := words(uint32(16+len(body)), uint32(kind)|(unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)<<16, 1, 0)
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("the answer of netlink is too short")
	}
	if code := int32(binary.NativeEndian.Uint32(b[16:])); code != 0 {
		return fmt.Errorf("netlink message %d: %w", kind, unix.Errno(-code))
	}
	return nil
}

// createPair creates the pair, with the far end in the network namespace of another process.
func createPair(pid int) error {
	const infoKind, infoData, infoPeer = 1, 2, 1
	link := make([]byte, unix.SizeofIfInfomsg)
	name := func(s string) []byte { return attr(unix.IFLA_IFNAME, []byte(s+"\x00")) }
	peer := attr(infoPeer, link, name(farName), attr(unix.IFLA_NET_NS_PID, words(uint32(pid))))
	return netlink(unix.RTM_NEWLINK, append(append(link, name(nearName)...),
		attr(unix.IFLA_LINKINFO, attr(infoKind, []byte("veth")), attr(infoData, peer))...))
}

// configure sets an interface up and gives it its two addresses, without duplicate detection.
func configure(name string, host byte) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	link := make([]byte, unix.SizeofIfInfomsg)
	copy(link[4:], words(uint32(i.Index), unix.IFF_UP, unix.IFF_UP))
	if err := netlink(unix.RTM_NEWLINK, link); err != nil {
		return err
	}
	v4 := append([]byte{unix.AF_INET, 24, 0, 0}, words(uint32(i.Index))...)
	v4 = append(v4, attr(unix.IFA_LOCAL, []byte{192, 0, 2, host})...)
	v6 := append([]byte{unix.AF_INET6, 64, unix.IFA_F_NODAD, 0}, words(uint32(i.Index))...)
	v6 = append(v6, attr(unix.IFA_LOCAL, []byte{0xfd, 0, 0, 2, 15: host})...)
	return errors.Join(netlink(unix.RTM_NEWADDR, v4), netlink(unix.RTM_NEWADDR, v6))
}
