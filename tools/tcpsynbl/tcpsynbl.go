// Package tcpsynbl shows how full the queues of TCP listeners are, as a histogram.
package tcpsynbl

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh tcpsynbl.bpf.c

type options struct {
	source.Interval
	tcp.Family
	Port  flags.Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	Ports bool        `flag:"ports" bpf:"by_port" key:"lport" help:"also group by local port"`
	NetNS uint32      `flag:"netns-id" arg:"INODE" min:"1" bpf:"targ_netns" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
}

// label mirrors struct hist_key.
type label struct {
	BacklogMax uint32 `json:"backlog_max" help:"limit of the queue: the argument of listen(2), at most net.core.somaxconn"`
	Port       uint32 `json:"lport" help:"port of the listener"`
}

// Tool is the definition of tcpsynbl.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpsynbl",
	Category: "network",
	Summary:  "TCP SYN backlog (accept queue) of listeners as a histogram, by its limit",
	Description: `Shows how many connections wait for accept(2) at a listener each time that another connection completes its handshake, or begins with data in the SYN (TCP Fast Open), in all network namespaces. There is one histogram per limit of the queue. The values are numbers of connections, without the new one.

If the number exceeds the limit, the queue is full: the kernel drops the last packet of the handshake, and the client repeats it. The summary has the number of these attempts (full), unless they are missed, see below. A SYN that finds the queue full is dropped before there is a handshake, and has no value here. The kernel counts both as ListenOverflows (nstat). The size of the queue is backlog_max + 1. ss -lt shows both values as Recv-Q and Send-Q.

The hooks are the functions tcp_v4_syn_recv_sock and tcp_v6_syn_recv_sock. If they cannot be traced, the values are read at sock:inet_sock_set_state, when the kernel has created the socket of the connection. Then attempts at a full queue are missed, and IPv4 connections of IPv6 listeners count as IPv6.`,
	Peers: []string{
		"The values are those of the accept queue, as in libbpf-tools, BCC and bpftrace, despite the name. Requests that have not completed the handshake are not included.",
		"IPv4 connections of an IPv6 listener count once, as IPv4. The peers count them twice.",
		"A kernel without kprobes is supported, with the restrictions above.",
		"The first bar is 0 -> 1, as in other histograms; JSON has exact counts for values up to 15.",
	},
	Examples: []string{
		"tcpsynbl 10               # a report every 10 seconds",
		"tcpsynbl --ports -P 80,443  # two ports, separately",
		"tcpsynbl --filter 'max >= backlog_max / 2' 60  # limits that were at least half reached in a minute",
	},
	Object: loadBpf,
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Hists[label, label]{
		Plan: tool.Plan{StandIns: []tool.StandIn{{
			Hook: "created", For: "handshake", Lacks: []string{"full"},
			Means: "attempts at a full queue are missed, and IPv4 connections of IPv6 listeners count as IPv6",
		}}},
		Interval: o.Interval,
		Unit:     histogram.Values,
		Name:     "backlog",
		Label:    func(k label) label { return k },
		Keys:     append([]string{"backlog_max"}, source.Keys(o)...),
	}, nil
}
