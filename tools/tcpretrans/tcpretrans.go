// Package tcpretrans traces TCP retransmissions.
package tcpretrans

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpretrans.bpf.c -type cause

type options struct {
	tcp.Family
	Sequence  bool `flag:"sequence,s" help:"show the sequence number"`
	LossProbe bool `flag:"lossprobe,l" help:"include tail loss probes that send new data, if the kernel function can be traced"`
	Unsent    bool `flag:"unsent" bpf:"targ_unsent" help:"include retransmissions that the kernel abandoned before sending anything (kernel 6.17 and later)"`
	Count     bool `flag:"count,c" help:"at the end, print the number of retransmissions per connection"`
	tcp.Wide
}

type event struct {
	value.Task
	value.Ends
	Seq      uint32         `json:"seq" col:"SEQ,width=10,right" help:"first sequence number"`
	Bytes    uint32         `json:"bytes" col:"BYTES,width=6,right" help:"retransmitted payload; 0 for SYN, SYN/ACK and FIN without data, and for a probe that sends new data" btf:"bytes"`
	Segments uint32         `json:"segments" col:"SEGS,width=4,right" help:"segments on the wire, as counted in RetransSegs; 0 for a probe that sends new data, and for abandoned retransmissions (--unsent)"`
	Error    value.Error    `json:"error" col:"ERROR,width=10" help:"name of the errno if the network layer rejected the segment, which RetransSegs still counts, or if the retransmission was abandoned (--unsent)"`
	TCPState value.TCPState `json:"tcp_state" col:"STATE,width=12" help:"state of the connection; NEW_SYN_RECV for a SYN/ACK"`
	Cause    cause          `json:"cause" col:"CAUSE,width=10" help:"timeout: the retransmission timer; fast: loss detected from acknowledgements; slow_start: lost before a timeout; probe: a tail loss probe that retransmits; new_probe: one that sends new data (--lossprobe); synack: a SYN/ACK"`
	_        [6]uint8
}

type row struct {
	event
	tcp.Version
	Type string `json:"kind" col:"T,width=1" help:"R for a retransmission, L for a tail loss probe"`
}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	r.Family = r.RAddr.Family()
	r.Type = r.Cause.kind()
	return nil
}

// Tool is the definition of tcpretrans.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpretrans",
	Category: "network",
	Summary:  "Trace TCP retransmissions with their cause",
	Description: `Shows each TCP retransmission, in all network namespaces, with the connection, its state and the cause. The sum of the column segments is the value that the kernel counts as RetransSegs (nstat).

The hooks are tcp:tcp_retransmit_skb and, for SYN/ACK, tcp:tcp_retransmit_synack. Tail loss probes that retransmit the last segment are included. With --lossprobe, probes that send new data, which are not retransmissions, are shown too, at tcp_send_loss_probe, if that function can be traced (--explain).

The kernel abandons some retransmissions before sending anything: EBUSY while the first copy is still in a queue of this host, EAGAIN while the receiver's window is closed, EHOSTUNREACH without a route, ENOMEM. They are not counted in RetransSegs, and are shown only with --unsent, with 0 segments. The summary has their number (unsent). They are not visible on kernels before 6.17.

RetransSegs does count segments that the network layer then rejects, such as by a firewall (EPERM): these are rows with an error. Kernels before 6.17 do not show them: they are counted as lost (unobserved) when the connection next retransmits successfully or ends.

Segments are retransmitted by a timer or on receipt of a packet, in the context of an arbitrary task. pid, uid, comm and cgroup are not those of the current task, but of the owner: the task that called connect, accept or, for a SYN/ACK, listen. Owners are recorded from the start of the tool; a connection opened before belongs to the first task with a file descriptor of it. Without an owner, such as before accept, pid is 0, uid is 4294967295 and comm is empty.

With --count, only the counts are printed, at the end. --columns selects the columns to group by.`,
	Peers: []string{
		"PID is that of the owner; BCC shows the current task.",
		"LADDR:LPORT T> RADDR:RPORT (BCC) are separate columns. CAUSE is additional.",
		"SYN/ACK retransmissions are shown; BCC omits them.",
		"-l (BCC: all tail loss probes, with a second line for those that retransmit) adds only probes that send new data; the others are always shown, with L in column T.",
		"-4 and -6 select by the protocol on the wire; BCC treats an IPv6 socket that carries IPv4 as IPv6.",
	},
	Overhead: "Recording the owners of connections costs more than tracing retransmissions: each of the 10 state changes of a loopback connection took 380 ns in both copies of the program (2,000 connections, otherwise busy CPUs). The program at the end of system calls took 65 to 78 ns per call, of which about 20 are the measurement (--stats).",
	Examples: []string{
		"tcpretrans                                # all retransmissions",
		"tcpretrans -c                             # number per connection",
		"tcpretrans -c --columns raddr,cause,count # by remote address and cause",
		`tcpretrans --unsent --filter 'error == "EBUSY"'  # segments that are still in a queue of this host`,
		`tcpretrans --container web --filter 'tcp_state == "SYN_SENT"'  # unanswered connects of a container`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 60,000 retransmissions at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{Optional: []string{"probe"}, MapEntries: tcp.ConnectionMaps()},
		Columns:     []string{"time", "pid", "family", "laddr", "lport", "kind", "raddr", "rport", "tcp_state", "cause"},
		BufferBytes: bufferBytes,
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
	}
	if !o.LossProbe {
		e.Without = []string{"probe"}
	}
	if o.Sequence {
		e.Columns = append(e.Columns, "seq")
	}
	if o.Count {
		e.Count = []string{"laddr", "lport", "raddr", "rport"}
		e.Headers = map[string]string{"count": "RETRANSMITS"}
	}
	e.Widths = o.Widths("laddr", "raddr")
	return e, nil
}
