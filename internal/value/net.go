package value

import (
	"net/netip"
	"strconv"
	"strings"
)

// Addr is an IP address in 16 bytes. IPv4 addresses are mapped to IPv6, and are rendered as
// IPv4.
type Addr [16]byte

// IP returns the address, as IPv4 if it is IPv4-mapped.
func (v *Addr) IP() netip.Addr { return netip.AddrFrom16(*v).Unmap() }

// Family returns the IP version: 4 or 6.
func (v *Addr) Family() uint8 {
	if v.IP().Is4() {
		return 4
	}
	return 6
}

func (v *Addr) AppendText(b []byte) []byte { return v.IP().AppendTo(b) }
func (v *Addr) AppendJSON(b []byte) []byte { return append(v.AppendText(append(b, '"')), '"') }
func (v *Addr) Any() any                   { return v.IP().String() }
func (v *Addr) Schema() Schema             { return Schema{Type: "string"} }

// Ends mirrors struct sock_ends of sock.bpf.h, the two endpoints of a connection.
type Ends struct {
	LAddr Addr   `json:"laddr" col:"LADDR,width=15" help:"local address; an IPv4-mapped IPv6 address is shown as IPv4"`
	RAddr Addr   `json:"raddr" col:"RADDR,width=15" help:"remote address; an IPv4-mapped IPv6 address is shown as IPv4"`
	LPort uint16 `json:"lport" col:"LPORT,width=5" help:"local port"`
	RPort uint16 `json:"rport" col:"RPORT,width=5" help:"remote port"`
	NetNS uint32 `json:"netns" col:"NETNS,width=10" help:"network namespace: inode number of /proc/PID/ns/net"`
}

// TCPState is a TCP state, numbered as in include/net/tcp_states.h.
type TCPState uint8

func tcpStates() []string {
	return []string{
		1: "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT",
		"CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV", "BOUND_INACTIVE",
	}
}

func (v *TCPState) name() string {
	if names := tcpStates(); *v > 0 && int(*v) < len(names) {
		return names[*v]
	}
	return strconv.Itoa(int(*v))
}

func (v *TCPState) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *TCPState) AppendJSON(b []byte) []byte { return AppendString(b, v.name()) }
func (v *TCPState) Any() any                   { return v.name() }
func (v *TCPState) Schema() Schema             { return Schema{Type: "string"} }

// Direction is enum direction of conn.bpf.h: which side opened a connection. It is 0 and
// absent if that is unknown.
type Direction uint8

func directions() []string { return []string{"active", "passive"} }

func (v *Direction) name() string               { return directions()[(*v-1)%2] }
func (v *Direction) Absent() bool               { return *v == 0 }
func (v *Direction) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *Direction) AppendJSON(b []byte) []byte { return AppendString(b, v.name()) }
func (v *Direction) Schema() Schema             { return Schema{Type: "string", Enum: directions()} }

func (v *Direction) Any() any {
	if v.Absent() {
		return ""
	}
	return v.name()
}

// Protocol is a transport protocol, IPPROTO_*.
type Protocol uint16

// String returns the name of the protocol, or its number.
func (v Protocol) String() string {
	names := map[Protocol]string{
		1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmpv6", 132: "sctp", 136: "udplite", 255: "raw", 262: "mptcp",
	}
	if name, ok := names[v]; ok {
		return name
	}
	return strconv.Itoa(int(v))
}

func (v *Protocol) AppendText(b []byte) []byte { return append(b, strings.ToUpper(v.String())...) }
func (v *Protocol) AppendJSON(b []byte) []byte { return AppendString(b, v.String()) }
func (v *Protocol) Any() any                   { return v.String() }
func (v *Protocol) Schema() Schema             { return Schema{Type: "string"} }
