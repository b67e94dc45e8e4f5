// Package solisten traces listen() calls of IP sockets.
package solisten

import (
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh solisten.bpf.c

type options struct {
	NetNS     uint32 `flag:"netns,n" arg:"INODE" min:"1" bpf:"targ_netns" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
	ShowNetNS bool   `flag:"show-netns" help:"show the network namespace"`
	tcp.Times
	tcp.Wide
}

type event struct {
	value.Task
	End        end    `btf:"local_end"`
	Ret        int32  `json:"ret" col:"RET,width=4,right" help:"return value: 0, or -errno"`
	Backlog    int32  `json:"requested_backlog" col:"BACKLOG,width=7,right" help:"maximum number of connections waiting for accept, as requested by the task"`
	BacklogMax uint32 `json:"backlog_max" col:"MAX,width=5,right" help:"maximum number of connections waiting for accept that the socket has after the call: the requested one, limited by net.core.somaxconn"`
	IPVersion  uint32 `btf:"family"`
}

// end mirrors struct local_end of sockset.bpf.h.
type end struct {
	LAddr           value.Addr
	NetNS           uint32
	LPort, Protocol uint16
}

type row struct {
	event
	source.Elapsed
	Family   uint8       `json:"family" col:"IP,width=2" help:"IP version of the socket: 4 or 6; a socket of version 6 with the address :: can accept both"`
	Protocol protocol    `json:"protocol" col:"PROTO,width=7" help:"protocol of the socket: tcp, mptcp, sctp and so on, or its number; text shows capital letters and the IP version"`
	LAddr    value.Addr  `json:"laddr" col:"ADDR,width=15" help:"local address of the socket; an IPv4-mapped IPv6 address is shown as IPv4"`
	LPort    uint16      `json:"lport" col:"PORT,width=5" help:"local port of the socket after the call"`
	NetNS    uint32      `json:"netns" col:"NETNS,width=10" help:"network namespace: inode number of /proc/PID/ns/net"`
	Error    value.Error `json:"error" col:"ERROR,width=13" help:"name of the errno of a failed call"`
}

// protocol is a protocol whose text includes the IP version: TCPv4.
type protocol struct {
	value.Protocol
	family uint8
}

func (v *protocol) AppendText(b []byte) []byte {
	return strconv.AppendUint(append(v.Protocol.AppendText(b), 'v'), uint64(v.family), 10)
}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	r.Family, r.Error = uint8(r.IPVersion), value.Error(r.Ret)
	r.Protocol = protocol{value.Protocol(r.End.Protocol), r.Family}
	r.LAddr, r.LPort, r.NetNS = r.End.LAddr, r.End.LPort, r.End.NetNS
	return nil
}

// Tool is the definition of solisten.
var Tool = tool.Define(tool.Spec{
	Name:     "solisten",
	Category: "network",
	Summary:  "Trace listen() calls: sockets on which processes start to accept TCP connections",
	Description: `Shows each listen(2) of an IPv4 or IPv6 socket when it returns, in all network namespaces, with the address and port of the socket and its backlog. Failed calls are shown with their errno. A program can call listen again to change the backlog.

A socket that is not bound gets its port in this call; the row shows it.

Calls are traced at the end of system calls (raw_syscalls:sys_exit), of 64-bit and 32-bit tasks, by a program that returns immediately for other calls. Requests of io_uring (kernel 6.11 and later) are traced when they complete (hook uring; see --explain), except successful ones that suppress their completion. A successful call whose descriptor another thread closes before it returns has no row, but is counted (closed). Sockets that listen already are listed by sockets(8).`,
	Peers: []string{
		"-T shows the time and -t seconds since the start, as in tcpaccept. libbpf-tools shows the time with -t.",
		"-n and --show-netns are those of BCC, whose rows lack the result of the call.",
		"Sockets of MPTCP, which Go programs use, and SCTP are shown: the peers trace inet_listen, which those do not call.",
		"Requests of io_uring are shown. Neither kprobes nor fentry are needed.",
	},
	Examples: []string{
		"solisten                        # all calls",
		"solisten --show-netns -T        # with the network namespace and the time",
		"solisten --container web        # calls in a container",
		"solisten --filter 'requested_backlog > backlog_max'  # backlogs that net.core.somaxconn limits",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{Optional: []string{"uring"}},
		Columns:     o.columns(),
		BufferBytes: 4 << 20, // about 40,000 calls
	}
	e.Widths = o.Widths("laddr")
	return e, nil
}

func (o *options) columns() []string {
	cols := append(o.Times.Columns(), "pid", "comm")
	if o.ShowNetNS {
		cols = append(cols, "netns")
	}
	return append(cols, "ret", "requested_backlog", "protocol", "lport", "laddr")
}
