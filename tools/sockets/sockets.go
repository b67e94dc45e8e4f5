// Package sockets lists sockets and who holds them.
package sockets

import (
	"errors"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh sockets.bpf.c

type options struct {
	TCP         bool `flag:"tcp,t" help:"TCP; with others of these flags, those too"`
	UDP         bool `flag:"udp,u" help:"UDP"`
	Unix        bool `flag:"unix,x" help:"sockets of this machine alone (AF_UNIX)"`
	IPv4        bool `flag:"ipv4,4" help:"only IPv4, also on IPv6 sockets"`
	IPv6        bool `flag:"ipv6,6" help:"only IPv6"`
	Listening   bool `flag:"listening,l" bpf:"targ_listening" help:"only those that wait for connections, and UDP's that wait for anyone"`
	Established bool `flag:"established,e" bpf:"targ_established" help:"only connections that are established"`
}

type event struct {
	value.Task
	Ends       ends
	Inode      uint64 `json:"inode" col:"INODE,width=9,right" help:"inode number, as in /proc/PID/fd; 0 for what no program can have a descriptor of yet, or any more"`
	PeerInode  uint64
	RxBytes    uint64
	TxBytes    uint64
	Backlog    uint32
	BacklogMax uint32
	SockUID    uint32 `json:"sock_uid" col:"SOCKUID,width=7,right" help:"user id that the socket was made for; 4294967295 where it is not whole (TIME_WAIT, NEW_SYN_RECV)"`
	FDNr       uint32 `btf:"fd"`
	Holders    uint32 `json:"holders" col:"HOLDERS,width=7,right" help:"descriptors of it in all processes"`
	PathLen    uint32
	KindNr     uint16         `btf:"kind"`
	ProtocolNr uint8          `btf:"protocol"`
	StateNr    value.TCPState `json:"state" col:"STATE,width=12" help:"state as TCP numbers them, for all: LISTEN; ESTABLISHED also for UDP and datagrams that are connected; CLOSE for what is not connected" btf:"state"`
	Full       bool
	IsIPv4     bool
	_          [2]byte
	PathBytes  [108]byte `btf:"path"`
	_          uint32
}

// ends is struct sock_ends of sock.bpf.h.
type ends struct {
	LAddr, RAddr value.Addr
	LPort, RPort uint16
	NetNS        uint32
}

type row struct {
	event
	Protocol string      `json:"protocol" col:"PROTO,width=5" help:"tcp, udp or unix"`
	Kind     string      `json:"kind" col:"KIND,width=9" help:"stream, dgram or seqpacket"`
	LAddr    address     `json:"laddr" col:"LADDR,width=15" help:"local address; one of IPv4 mapped to IPv6 is shown as IPv4; not of unix"`
	LPort    value.Count `json:"lport" col:"LPORT,width=5" help:"local port, 0 where there is none yet; not of unix"`
	RAddr    address     `json:"raddr" col:"RADDR,width=15" help:"remote address; not of unix"`
	RPort    value.Count `json:"rport" col:"RPORT,width=5" help:"remote port; not of unix"`
	Path     value.Bytes `json:"path" col:"PATH,width=30" help:"of unix: the path it is bound to as the program gave it, or @ and its abstract name; of one that was accepted, the listener's"`
	Peer     value.Count `json:"peer_inode" col:"PEER,width=9,right" help:"of unix: inode number of the socket that it is connected to"`
	NetNS    uint32      `json:"netns" col:"NETNS,width=10" help:"network namespace: inode of /proc/PID/ns/net"`
	Rx       value.Count `json:"rx_queue_bytes" col:"RX-Q,width=7,right" help:"TCP: bytes that came in order and were not read; UDP: memory of the datagrams that were not read; absent for listeners, unix and TIME_WAIT"`
	Tx       value.Count `json:"tx_queue_bytes" col:"TX-Q,width=7,right" help:"TCP: bytes written and not acknowledged; UDP and unix: memory of what was sent and is not yet taken; absent likewise, but for unix"`
	Waiting  value.Count `json:"backlog" col:"BACKLOG,width=7,right" help:"of listeners: connections that were not accepted yet"`
	Limit    value.Count `json:"backlog_max" col:"MAX,width=5,right" help:"of listeners: so many may wait"`
	FD       value.Count `json:"fd" col:"FD,width=4,right" help:"the owner's descriptor"`
}

// address may be absent.
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

// Bits of enum protocol, and the state that listens.
const (
	isTCP  = 1
	isUDP  = 2
	isUnix = 4
	listen = 10
)

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	r.Protocol = map[uint8]string{isTCP: "tcp", isUDP: "udp", isUnix: "unix"}[r.ProtocolNr]
	r.Kind = map[uint16]string{1: "stream", 2: "dgram", 5: "seqpacket"}[r.KindNr]
	inet, listens := r.ProtocolNr != isUnix, r.StateNr == listen
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

// unixPath is what is shown of a name: a path ends at its NUL, an abstract name begins
// with one.
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

// Tool is sockets.
var Tool = tool.Define(tool.Spec{
	Name:     "sockets",
	Category: "network",
	Summary:  "List sockets and who holds them",
	Description: `Lists the TCP, UDP and AF_UNIX sockets with their ends, states and queues, and who holds them: the question of ss.

The pid, uid, comm and cgroup are those of the owner, the first process that has a descriptor of the socket, in the order of process ids, of those that the task filter takes; holders is how many descriptors there are. Sockets that processes hold are listed for all network namespaces. The others, which have no owner (pid 0, uid 4294967295), are listed for the tool's own network namespace, if there is no task filter: in TIME_WAIT, not accepted yet, closed by their process, held by the kernel, on the way between processes, or made while the list was. Of MPTCP, its TCP connections are listed, of that namespace as well.

Before 5.15 the kernel cannot list AF_UNIX sockets without an owner, and the list lacks these; standard error says so.`,
	Peers: []string{
		"There is no tool of this name in BCC or libbpf-tools.",
	},
	Examples: []string{
		"sockets                              # all",
		"sockets -tul                         # what waits for connections or datagrams",
		"sockets --container web -te          # established connections of a container",
		"sockets --filter 'rx_queue_bytes > 65536' # whose program does not read",
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
	return &tool.List[row]{
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
		return nil, errors.New("--ipv4 and --ipv6 do not go together")
	case o.IPv4:
		vars["targ_family"] = uint8(4)
	case o.IPv6:
		vars["targ_family"] = uint8(6)
	}
	var protocols uint32
	for bit, given := range map[uint32]bool{isTCP: o.TCP, isUDP: o.UDP, isUnix: o.Unix} {
		if given {
			protocols |= bit
		}
	}
	if protocols != 0 {
		vars["targ_protocols"] = protocols
	}
	return vars, nil
}
