// Package packetsnoop captures packets with the process and container of their socket.
package packetsnoop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh packetsnoop.bpf.c -type link_type -type packet_direction -type term_kind -type term

type options struct {
	Write      string   `flag:"write,w" arg:"FILE" help:"write packets to FILE in the format pcapng instead of showing rows; - is standard output"`
	Interface  string   `flag:"interface,i" arg:"NAME" help:"only network interfaces of this name; any is all" unset:"all by default, in all network namespaces"`
	Snaplen    uint32   `flag:"snaplen,s" also:"snapshot-length" zero:"none" min:"1" arg:"BYTES" help:"with --write, the most bytes of a packet that are written" unset:"65,280 by default, and for 0, which is the maximum"`
	Packets    uint64   `flag:"packets,c" arg:"N" min:"1" sets:"limit" help:"stop after N packets, same as --limit"`
	Direction  string   `flag:"direction,Q" of:"in,out,inout" help:"only received packets (in) or sent ones (out)"`
	Numeric    bool     `flag:"numeric,n" help:"no effect, for compatibility with tcpdump: addresses are never resolved"`
	Unbuffered bool     `flag:"packet-buffered,U" help:"no effect, for compatibility with tcpdump: packets are written as soon as they are read"`
	Expression []string `pos:"expression..." help:"only packets that match this expression of tcpdump, such as 'port 80 and host 10.0.0.1'"`
}

// maxSnaplen is the largest part of a packet that fits in a record of a perf buffer, whose size has
// 16 bits, with struct event.
const maxSnaplen = 65280

// Check returns an error for a name that no interface can have, and for invalid expressions.
func (o *options) Check() error {
	if len(o.Interface) > 15 {
		return fmt.Errorf("--interface %s: names of network interfaces have at most 15 bytes", o.Interface)
	}
	if o.Snaplen > 0 && o.Write == "" {
		return errors.New("--snaplen: it needs --write, because rows have no data of packets")
	}
	if _, err := compile(o.expression()); err != nil {
		return fmt.Errorf("expression: %w", err)
	}
	return nil
}

func (o *options) expression() string { return strings.Join(o.Expression, " ") }

// event mirrors struct event.
type event struct {
	value.Task
	SAddr, DAddr     value.Addr
	NetNS            uint32 `json:"netns" col:"NETNS,width=10" help:"network namespace of the interface: inode number of /proc/PID/ns/net"`
	IfIndex          uint32 `json:"ifindex" col:"IF,width=3,right" help:"index of the interface in its network namespace"`
	Name             [16]byte
	Len              uint32 `json:"length_bytes" col:"LEN,width=6,right" help:"length of the whole packet from the Ethernet header on (of interfaces without one, from the IP header on); a packet that the interface splits (segmentation offload) or that was assembled (GRO) is one packet"`
	Skip, GSOSize    uint32
	Seq, Ack         uint32
	SPort, DPort     uint16
	EtherType        uint16
	VLANProto        uint16
	VLANTCI          uint16
	Link             uint8
	Direction        uint8
	Protocol, Read   uint8
	Flags            uint8
	ICMPType         uint8
	ICMPCode, MACLen uint8
	MAC              [14]byte
	_                [4]uint8
}

// Bits of event.Read: READ_* of packet.bpf.h.
const (
	readAddrs = 1 << iota
	readPorts
	readTCP
	readICMP
)

type row struct {
	event
	Interface    value.Name  `json:"interface" col:"DEV,width=10" help:"name of the network interface"`
	Direction    string      `json:"direction" col:"DIR,width=3" help:"out for a sent packet, in for a received one; on a loopback interface a packet is shown once: see the description"`
	Protocol     string      `json:"protocol" col:"PROTO,width=6" help:"protocol after the IP header and its extensions: tcp, udp, icmp, icmpv6, or a number; of other packets arp, rarp, or the Ethernet type as 0x88cc"`
	SAddr        addr        `json:"saddr" col:"SADDR,width=15" help:"source address; of ARP that of the sender; absent for other packets"`
	SPort        value.Count `json:"sport" col:"SPORT,width=5" help:"source port of TCP, UDP, SCTP and DCCP; absent for other packets, and for fragments except the first"`
	DAddr        addr        `json:"daddr" col:"DADDR,width=15" help:"destination address; of ARP that of the target; absent for other packets"`
	DPort        value.Count `json:"dport" col:"DPORT,width=5" help:"destination port, as sport"`
	Flags        tcpFlagSet  `json:"flags" col:"FLAGS,width=11" help:"flags of the TCP header: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR; absent for other packets"`
	Seq          value.Count `json:"seq" col:"SEQ,width=10,right" help:"sequence number of the TCP header; absent for other packets"`
	Ack          value.Count `json:"ack" col:"ACK,width=10,right" help:"acknowledgement number of the TCP header; absent for other packets"`
	ICMPType     value.Count `json:"icmp_type" col:"TYPE,width=4,right" help:"type of ICMP or ICMPv6; absent for other packets"`
	ICMPCode     value.Count `json:"icmp_code" col:"CODE,width=4,right" help:"code of ICMP or ICMPv6; absent for other packets"`
	VLAN         value.Count `json:"vlan" col:"VLAN,width=4,right" help:"ID of the VLAN tag that the kernel keeps beside the packet; absent without one"`
	SegmentBytes value.Count `json:"segment_bytes" col:"SEGMENT,width=7,right" help:"payload of each segment, of a packet that the interface splits or that was assembled from several; absent for others"`

	snaplen    uint32
	head, data []byte // of the packet, valid until the next one
}

// Decode sets the optional columns, and finds the data of the packet in the tail.
func (r *row) Decode(tail []byte) error {
	e := &r.event
	given := func(n uint32, bit uint8) value.Count { return value.Count{N: uint64(n), Given: e.Read&bit != 0} }
	r.Interface = value.NameOf(e.Name[:])
	r.Direction = map[uint8]string{uint8(bpfPacketDirectionPACKET_IN): "in", uint8(bpfPacketDirectionPACKET_OUT): "out"}[e.Direction]
	r.Protocol = e.protocol()
	r.SAddr, r.DAddr = addr{e.SAddr, e.Read&readAddrs != 0}, addr{e.DAddr, e.Read&readAddrs != 0}
	r.SPort, r.DPort = given(uint32(e.SPort), readPorts), given(uint32(e.DPort), readPorts)
	r.Flags = tcpFlagSet{e.Flags, e.Read&readTCP != 0}
	r.Seq, r.Ack = given(e.Seq, readTCP), given(e.Ack, readTCP)
	r.ICMPType, r.ICMPCode = given(uint32(e.ICMPType), readICMP), given(uint32(e.ICMPCode), readICMP)
	r.VLAN = value.Count{N: uint64(e.VLANTCI & 0xfff), Given: e.VLANProto != 0}
	r.SegmentBytes = value.Count{N: uint64(e.GSOSize), Given: e.GSOSize > 0}
	if r.snaplen > 0 {
		r.setData(tail)
	}
	return nil
}

// vlanOffset is where a VLAN tag is in a packet: after the two Ethernet addresses.
const vlanOffset = 12

// setData sets the bytes of the packet. The Ethernet header of a received packet is in the event, and
// a VLAN tag too, if the kernel keeps it beside the packet.
func (r *row) setData(tail []byte) {
	e := &r.event
	var tag []byte
	if e.VLANProto != 0 {
		tag = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, e.VLANProto), e.VLANTCI)
	}
	size := min(int(e.Len)-len(tag)-int(e.MACLen)+int(e.Skip), int(r.snaplen)+int(e.Skip), len(tail))
	r.data = tail[min(int(e.Skip), size):size]
	r.head = append(r.head[:0], e.MAC[:e.MACLen]...)
	if tag == nil {
		return
	}
	if e.MACLen == 0 {
		n := min(vlanOffset, len(r.data))
		r.head, r.data = append(r.head, r.data[:n]...), r.data[n:]
	}
	r.head = slices.Insert(r.head, min(vlanOffset, len(r.head)), tag...)
}

func (e *event) protocol() string {
	switch e.EtherType {
	case 0x0800, 0x86dd:
		if e.Read&readAddrs == 0 {
			return map[bool]string{true: "ip", false: "ip6"}[e.EtherType == 0x0800]
		}
		return value.Protocol(e.Protocol).String()
	case 0x0806:
		return "arp"
	case 0x8035:
		return "rarp"
	}
	return "0x" + strconv.FormatUint(uint64(e.EtherType), 16)
}

// comment describes the owner of the packet in the capture file; "" if it is unknown.
func (r *row) comment(env *tool.Env) string {
	if r.PID == 0 {
		return ""
	}
	b := fmt.Appendf(nil, "pid=%d tid=%d uid=%d comm=", r.PID, r.TID, r.UID)
	b = value.AppendString(b, r.Comm.String())
	add := func(key, val string) {
		if val != "" {
			b = value.AppendString(append(b, " "+key+"="...), val)
		}
	}
	add("cgroup", env.CgroupPath(r.CgroupID))
	owner := env.Owner(r.CgroupID)
	add("container", owner.Name())
	add("container_id", owner.ContainerID)
	add("pod", owner.Pod)
	add("namespace", owner.Namespace)
	return string(b[:min(len(b), math.MaxUint16)])
}

// Tool is the definition of packetsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "packetsnoop",
	Category: "network",
	Summary:  "Capture packets with process and container: rows, or a pcapng file for Wireshark and tshark (tcpdump)",
	Description: `Shows each packet that network interfaces send and receive, in all network namespaces, with the process and the container of its socket. With -w, packets are written in the format pcapng, which tshark, Wireshark and tcpdump read: each with its direction, and with the process, cgroup and container as a comment (frame.comment). Nothing is attached to the network stack except programs that read, so packets and their order are not changed.

A sent packet is captured when the kernel passes it to the driver (net:net_dev_start_xmit), a received one when the network stack receives it (net:netif_receive_skb): the places where tcpdump captures. Packets are those of the kernel: one that the interface splits (segmentation offload), or that was assembled from several (GRO), is one packet with the length of the whole, and checksums that the interface computes are not yet set. A VLAN tag that the kernel keeps beside the packet is written into it. Not captured is what XDP programs drop or redirect, and packets that AF_XDP and packet sockets with PACKET_QDISC_BYPASS send. A packet that a VLAN, bonding or macvlan interface receives is shown with the interface below it, where it was received first. A packet that passes several interfaces has several rows.

pid, uid, comm, cgroup and container are not those of the current task, which is arbitrary, but of the owner of the socket: the task that last created, accepted, bound or connected it, or sent or received on it by a system call. Of sockets from before the run the owner is the first task with a descriptor of it, until another one uses it. The owner of a sent packet is that of the socket it refers to. The owner of a received packet is that of the socket with its addresses in the network namespace of the interface: of the connection, or for UDP and SYN packets of the socket that is bound to the local address and port. On a bridge or veth interface it can be that of the socket in another namespace that sent the packet. The owner is unknown (pid is 0, uid is 4294967295, comm is empty) if no task has such a socket: for forwarded packets, for ARP and most of ICMP, if several processes share the local address and port, for requests by io_uring on sockets that no system call used, and for answers to packets that the kernel has sent to another address (NAT).

A packet on a loopback interface is shown once: as sent, with the owner that sent it; or as received, if that owner is unknown or excluded by the task filter, or with --direction in. tcpdump shows it once too, as received.

Arguments are an expression as of tcpdump, evaluated in the kernel: host, net, port and portrange with src and dst; ip, ip6, arp, rarp, tcp, udp, sctp, icmp, icmp6, igmp, ah, esp; proto and ether proto with a number or name; less, greater and len; tcp[tcpflags]; and, or, not and parentheses, where and and or have the same precedence, as in tcpdump. Addresses and ports are numbers. Headers behind VLAN tags and IPv6 extensions are matched too. An expression is applied to the outer header of tunnels. Everything else, such as other bytes of headers, is refused. A packet whose headers cannot be read, because a driver has not placed them in the linear part, is shown without addresses; with an expression it is counted as lost (condition_unread).

Without -w, only headers are copied. With -w, lost packets (buffer_full) are counted in the file too, in the statistics of the first interface. The file is valid whenever the program ends, and is created with mode 0600. Packets of more than 65,280 bytes are cut; their original length is in the file. Files of packets contain the data of all users: handle them accordingly.`,
	Peers: []string{
		"-w, -i, -s, -c, -Q, -n and -U are those of tcpdump; -p is --pid, as in most tools, and there is no promiscuous mode: packets for other hosts are captured if the interface is in that mode already.",
		"Without -i all interfaces of all network namespaces are captured; tcpdump selects one interface of its own namespace.",
		"tcpdump compiles all expressions of pcap-filter(7); see the description for those of packetsnoop. vlan is not needed: fields behind VLAN tags match.",
		"The file has the link type of each interface, Ethernet or raw IP; tcpdump -i any writes a cooked header.",
		"The gadget tcpdump of Inspektor Gadget writes no process to its pcapng; it captures in network namespaces of pods with socket filters.",
	},
	Overhead: `On a busy machine with two CPUs, a sent packet of 142 bytes took 1.3 us as a row, and 7.8 us with -w, most of it to wake the reader; a packet that the expression excludes took 0.8 to 0.9 us. The program at the end of system calls, which notes the owners of sockets, took 120 to 250 ns per call (20,000 packets, --stats).`,
	Examples: []string{
		"packetsnoop port 53                            # DNS, with the process",
		"packetsnoop -i eth0 --container web            # packets of a container on one interface",
		"packetsnoop -w out.pcapng tcp port 443         # for Wireshark; comments name the process",
		"packetsnoop -c 100 'tcp[tcpflags] & tcp-rst != 0'  # resets",
		"packetsnoop -w - -p 1234                       # for a pipe: | tshark -r - -T fields -e frame.comment",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 40,000 rows; captureBytes for about 20,000 packets of 1,500 bytes.
const (
	bufferBytes  = 8 << 20
	captureBytes = 32 << 20
)

func build(o *options, env *tool.Env) (tool.Source, error) {
	terms, err := compile(o.expression())
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	directions := map[string]uint32{"in": 1 << bpfPacketDirectionPACKET_IN, "out": 1 << bpfPacketDirectionPACKET_OUT}[o.Direction]
	if directions == 0 {
		directions = 1<<bpfPacketDirectionPACKET_IN | 1<<bpfPacketDirectionPACKET_OUT
	}
	name := o.Interface
	if name == "any" {
		name = ""
	}
	all := [maxTerms]bpfTerm{}
	copy(all[:], terms)
	e := &source.Events[row]{
		Plan: tool.Plan{
			Variables: map[string]any{
				"targ_nr_terms": uint32(len(terms)), "targ_terms": all, "targ_directions": directions, "targ_interface": name,
			},
			Begin:   []tool.Iterator{{Program: "existing_files"}},
			RowNoun: "packet",
		},
		Columns:     []string{"time", "pid", "comm", "interface", "direction", "protocol", "saddr", "sport", "daddr", "dport", "flags", "length_bytes"},
		BufferBytes: bufferBytes,
	}
	e.NoteInterface(name)
	if o.Write == "" {
		return e, nil
	}
	e.Row.snaplen = maxSnaplen
	if o.Snaplen > 0 {
		e.Row.snaplen = min(o.Snaplen, maxSnaplen)
	}
	e.Variables["targ_snaplen"] = e.Row.snaplen
	e.PerfBuffer, e.BufferBytes = true, captureBytes
	e.Columns = append(e.Columns, "container", "cgroup") // names for the comments are remembered
	e.Sink = &pcapng{path: o.Write, snaplen: e.Row.snaplen, row: &e.Row, env: env, ids: map[link]uint32{}}
	return e, nil
}
