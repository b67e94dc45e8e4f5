package tcptest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Constants of include/uapi/linux/mptcp_pm.h.
const (
	mptcpFamily     = "mptcp_pm"
	mptcpAddAddr    = 1
	mptcpSetLimits  = 5
	mptcpAttrAddr   = 1
	mptcpAttrAccept = 2
	mptcpAttrFlows  = 3
	mptcpAddrFamily = 1
	mptcpAddrV4     = 3
	mptcpAddrFlags  = 6
	mptcpFlagFlow   = 1 << 1
)

// AddSubflows adds an MPTCP endpoint, so that each MPTCP connection of this network namespace opens
// a second subflow from the address.
func AddSubflows(from netip.Addr) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	reply, err := generic(fd, unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, attr(unix.CTRL_ATTR_FAMILY_NAME, append([]byte(mptcpFamily), 0)))
	if err != nil {
		return fmt.Errorf("find netlink family %s: %w", mptcpFamily, err)
	}
	family, ok := findAttr(reply, unix.CTRL_ATTR_FAMILY_ID)
	if !ok {
		return fmt.Errorf("find netlink family %s: reply without an ID", mptcpFamily)
	}
	limits := append(attr(mptcpAttrAccept, u32(4)), attr(mptcpAttrFlows, u32(4))...)
	if _, err := generic(fd, binary.NativeEndian.Uint16(family), mptcpSetLimits, limits); err != nil {
		return fmt.Errorf("set limit of MPTCP subflows: %w", err)
	}
	addr := attr(mptcpAddrFamily, u16(unix.AF_INET))
	addr = append(addr, attr(mptcpAddrV4, from.AsSlice())...)
	addr = append(addr, attr(mptcpAddrFlags, u32(mptcpFlagFlow))...)
	_, err = generic(fd, binary.NativeEndian.Uint16(family), mptcpAddAddr, attr(mptcpAttrAddr|unix.NLA_F_NESTED, addr))
	if err != nil {
		return fmt.Errorf("add MPTCP endpoint %s: %w", from, err)
	}
	return nil
}

func u16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// attr encodes a netlink attribute.
func attr(kind uint16, value []byte) []byte {
	b := append(u16(uint16(4+len(value))), u16(kind)...)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func findAttr(attrs []byte, kind uint16) ([]byte, bool) {
	for len(attrs) >= 4 {
		n := int(binary.NativeEndian.Uint16(attrs))
		if n < 4 || n > len(attrs) {
			break
		}
		if binary.NativeEndian.Uint16(attrs[2:]) == kind {
			return attrs[4:n], true
		}
		attrs = attrs[min((n+3)&^3, len(attrs)):]
	}
	return nil, false
}

// generic sends a generic netlink request and returns the attributes of the reply, nil if there are
// none.
func generic(fd int, family uint16, command uint8, attrs []byte) ([]byte, error) {
	const header, genericHeader = 16, 4
	flags := uint16(unix.NLM_F_REQUEST)
	if family != unix.GENL_ID_CTRL {
		flags |= unix.NLM_F_ACK
	}
	b := u32(uint32(header + genericHeader + len(attrs)))
	b = append(append(b, u16(family)...), u16(flags)...)
	b = append(append(b, u32(1)...), u32(0)...)
	b = append(append(b, command, 1, 0, 0), attrs...)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	reply := make([]byte, 1<<14)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return reply[header+genericHeader : n], nil
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[header:])); errno != 0 {
		return nil, unix.Errno(errno)
	}
	return nil, nil
}

// AwaitEstablished waits until n sockets of this network namespace with the port are in state
// ESTABLISHED.
func AwaitEstablished(port, n int) error {
	for {
		open, err := established(port)
		if err != nil || open >= n {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
