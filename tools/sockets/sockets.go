// Package sockets lists sockets and the processes holding them.
package sockets

import (
	"errors"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sockets.bpf.c -type protocol

type options struct {
	TCP         bool `flag:"tcp,t" help:"list TCP sockets; can be combined with --udp and --unix"`
	UDP         bool `flag:"udp,u" help:"list UDP sockets"`
	Unix        bool `flag:"unix,x" help:"list Unix domain sockets (AF_UNIX)"`
	IPv4        bool `flag:"ipv4,4" help:"only IPv4, including IPv4 on IPv6 sockets"`
	IPv6        bool `flag:"ipv6,6" help:"only IPv6"`
	Listening   bool `flag:"listening,l" bpf:"targ_listening" help:"only listening TCP and Unix sockets and unconnected UDP sockets"`
	Established bool `flag:"established,e" bpf:"targ_established" help:"only established connections"`
}

type event struct {
	value.Task
	Ends       ends
	Inode      uint64 `json:"inode" col:"INODE,width=9,right" help:"inode number, as in /proc/PID/fd; 0 if the socket has no file descriptor yet or any more"`
	PeerInode  uint64
	RxBytes    uint64
	TxBytes    uint64
	Backlog    uint32
	BacklogMax uint32
	SockUID    uint32 `json:"sock_uid" col:"SOCKUID,width=7,right" help:"ID of the user that the socket was created for; 4294967295 for TIME_WAIT and NEW_SYN_RECV, which have no full socket"`
	FDNr       uint32 `btf:"fd"`
	Holders    uint32 `json:"holders" col:"HOLDERS,width=7,right" help:"file descriptors of the socket in all processes"`
	PathLen    uint32
	KindNr     uint16         `btf:"kind"`
	ProtocolNr uint8          `btf:"protocol"`
	StateNr    value.TCPState `json:"state" col:"STATE,width=12" help:"TCP state, used for all protocols: LISTEN; ESTABLISHED also for connected UDP and datagram sockets; CLOSE for unconnected sockets" btf:"state"`
	Full       bool
	IsIPv4     bool
	_          [2]byte
	PathBytes  [108]byte `btf:"path"`
	_          uint32
}

// ends mirrors struct sock_ends in sock.bpf.h.
type ends struct {
	LAddr, RAddr value.Addr
	LPort, RPort uint16
	NetNS        uint32
}

type row struct {
	event
	Protocol string      `json:"protocol" col:"PROTO,width=5" help:"tcp, udp or unix"`
	Kind     string      `json:"kind" col:"KIND,width=9" help:"stream, dgram or seqpacket"`
	LAddr    address     `json:"laddr" col:"LADDR,width=15" help:"local address; IPv4-mapped IPv6 addresses are shown as IPv4; absent for unix"`
	LPort    value.Count `json:"lport" col:"LPORT,width=5" help:"local port, 0 if not bound yet; absent for unix"`
	RAddr    address     `json:"raddr" col:"RADDR,width=15" help:"remote address; absent for unix"`
	RPort    value.Count `json:"rport" col:"RPORT,width=5" help:"remote port; absent for unix"`
	Path     value.Bytes `json:"path" col:"PATH,width=30" help:"of unix: path as given by the program, or @ and the abstract name; of an accepted socket that of the listener"`
	Peer     value.Count `json:"peer_inode" col:"PEER,width=9,right" help:"of unix: inode number of the connected socket"`
	NetNS    uint32      `json:"netns" col:"NETNS,width=10" help:"network namespace: inode number of /proc/PID/ns/net"`
	Rx       value.Count `json:"rx_queue_bytes" col:"RX-Q,width=7,right" help:"TCP: bytes received in order and not read; UDP: memory of unread datagrams; absent for listeners, unix and TIME_WAIT"`
	Tx       value.Count `json:"tx_queue_bytes" col:"TX-Q,width=7,right" help:"TCP: bytes written and not acknowledged; UDP and unix: memory of data sent and not yet consumed; absent for listeners and TIME_WAIT"`
	Waiting  value.Count `json:"backlog" col:"BACKLOG,width=7,right" help:"of listeners: connections that are not accepted yet"`
	Limit    value.Count `json:"backlog_max" col:"MAX,width=5,right" help:"of listeners: maximum number of connections waiting for accept"`
	FD       value.Count `json:"fd" col:"FD,width=4,right" help:"file descriptor of the owner"`
}

// address is an address that is absent for Unix sockets.
type address struct {
	value.Addr
	given bool
}

func (v *address) Absent() bool { return !v.given }

func (v *address) Any() any {
	if !v.given {
		return ""
	}
	return v.Addr.Any()
}

// listen is the state TCP_LISTEN.
const listen = 10

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	protocol := bpfProtocol(r.ProtocolNr)
	r.Protocol = map[bpfProtocol]string{bpfProtocolIS_TCP: "tcp", bpfProtocolIS_UDP: "udp", bpfProtocolIS_UNIX: "unix"}[protocol]
	r.Kind = map[uint16]string{1: "stream", 2: "dgram", 5: "seqpacket"}[r.KindNr]
	inet, listens := protocol != bpfProtocolIS_UNIX, r.StateNr == listen
	if !r.Full {
		r.Kind = "stream"
	}
	e := &r.Ends
	r.LAddr, r.RAddr = address{e.LAddr, inet}, address{e.RAddr, inet}
	r.LPort, r.RPort = value.Count{N: uint64(e.LPort), Given: inet}, value.Count{N: uint64(e.RPort), Given: inet}
	r.NetNS = e.NetNS
	r.Rx = value.Count{N: r.RxBytes, Given: r.Full && inet && !listens}
	r.Tx = value.Count{N: r.TxBytes, Given: r.Full && !listens}
	r.Waiting = value.Count{N: uint64(r.Backlog), Given: listens}
	r.Limit = value.Count{N: uint64(r.BacklogMax), Given: listens}
	r.FD = value.Count{N: uint64(r.FDNr), Given: r.PID != 0}
	r.Peer = value.Count{N: r.PeerInode, Given: r.PeerInode != 0}
	r.Path = unixPath(r.PathBytes[:r.PathLen])
	return nil
}

// unixPath returns the displayed form of a socket name. A path ends at its NUL byte; an abstract name
// starts with one.
func unixPath(name []byte) []byte {
	switch {
	case len(name) == 0:
		return nil
	case name[0] == 0:
		name[0] = '@'
		return name
	}
	for i, c := range name {
		if c == 0 {
			return name[:i]
		}
	}
	return name
}

// Tool is the definition of sockets.
var Tool = tool.Define(tool.Spec{
	Name:     "sockets",
	Category: "network",
	Summary:  "List TCP, UDP and Unix sockets and the processes holding them (like ss and netstat)",
	Description: `Lists the TCP, UDP and AF_UNIX sockets with their addresses, states, queues and owners, as ss(8) does.

pid, uid, comm and cgroup describe the owner: of the processes that match the task filters, the first one, in the order of process IDs, with a file descriptor of the socket. holders is the number of file descriptors. Sockets held by processes are listed for all network namespaces. Sockets without an owner (pid 0, uid 4294967295) are listed only for the network namespace of the tool and without a task filter: sockets in TIME_WAIT, not yet accepted, closed by their process, held by the kernel, in transit between processes, or created during the listing. For an MPTCP socket, which Go programs use for listening, the underlying TCP sockets are listed.

Kernels before 5.15 cannot list AF_UNIX sockets without an owner; a notice on standard error reports that they are missing.`,
	Peers: []string{
		"BCC and libbpf-tools have no tool of this name.",
	},
	Examples: []string{
		"sockets                              # all sockets",
		"sockets -tul                         # listening TCP and UDP sockets",
		"sockets --container web -te          # established connections of a container",
		"sockets --filter 'rx_queue_bytes > 65536' # sockets with unread data",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	vars, err := o.variables()
	if err != nil {
		return nil, err
	}
	return &source.List[row]{
		Plan:    tool.Plan{Variables: vars, Optional: []string{"others_unix"}},
		Columns: []string{"protocol", "state", "rx_queue_bytes", "tx_queue_bytes", "laddr", "lport", "raddr", "rport", "pid", "comm", "path"},
		Iterators: []tool.Iterator{
			{Program: "holders"}, {Program: "held"}, {Program: "others_tcp"}, {Program: "others_udp"}, {Program: "others_unix"},
		},
	}, nil
}

func (o *options) variables() (map[string]any, error) {
	vars := map[string]any{}
	switch {
	case o.IPv4 && o.IPv6:
		return nil, errors.New("--ipv4 and --ipv6 cannot be combined: both are listed by default")
	case o.Listening && o.Established:
		return nil, errors.New("--listening and --established cannot be combined: no socket is in both states")
	case (o.IPv4 || o.IPv6) && o.Unix && !o.TCP && !o.UDP:
		return nil, errors.New("--ipv4 and --ipv6 do not apply to Unix sockets")
	case o.IPv4:
		vars["targ_family"] = uint8(4)
	case o.IPv6:
		vars["targ_family"] = uint8(6)
	}
	var protocols bpfProtocol
	for bit, given := range map[bpfProtocol]bool{bpfProtocolIS_TCP: o.TCP, bpfProtocolIS_UDP: o.UDP, bpfProtocolIS_UNIX: o.Unix} {
		if given {
			protocols |= bit
		}
	}
	if protocols != 0 {
		vars["targ_protocols"] = uint32(protocols)
	}
	return vars, nil
}
