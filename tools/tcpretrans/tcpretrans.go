// Package tcpretrans shows TCP segments that are sent again.
package tcpretrans

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpretrans.bpf.c

type options struct {
	tool.Family
	Sequence  bool `flag:"sequence,s" help:"show the sequence number"`
	LossProbe bool `flag:"lossprobe,l" help:"also tail loss probes that send new data, where the kernel lets them be seen"`
	Count     bool `flag:"count,c" help:"at the end, count the retransmissions of each connection"`
	Wide      bool `flag:"wide,w" help:"make room for IPv6 addresses"`
}

type event struct {
	value.Task
	value.Ends
	Seq      uint32         `json:"seq" col:"SEQ,width=10,right" help:"sequence number that it begins with"`
	Bytes    uint32         `json:"bytes" col:"BYTES,width=6,right" help:"payload that is sent again; 0 for SYN, SYN/ACK and FIN alone, and for a probe that sends new data" btf:"bytes"`
	Segments uint32         `json:"segments" col:"SEGS,width=4,right" help:"segments that it is on the wire, of which the kernel counts each (RetransSegs); 0 for a probe that sends new data"`
	Error    value.Error    `json:"error" col:"ERROR,width=10" help:"name of the errno where it could not be sent; kernels that do not say so leave such a row out"`
	TCPState value.TCPState `json:"tcp_state" col:"STATE,width=12" help:"state of the connection; NEW_SYN_RECV for a SYN/ACK"`
	Cause    cause          `json:"cause" col:"CAUSE,width=10" help:"timeout: the retransmission timer; fast: acknowledgements say that it is lost; slow_start: lost before a timeout; probe: a tail loss probe that sends again; new_probe: one that sends new data (--lossprobe); synack: a SYN/ACK"`
	_        [6]uint8
}

type row struct {
	event
	Family uint8  `json:"family" col:"IP,width=2" help:"version of the Internet Protocol on the wire: 4 or 6"`
	Type   string `json:"kind" col:"T,width=1" help:"R for a retransmission, L for a tail loss probe"`
}

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	r.Family = r.RAddr.Family()
	r.Type = r.Cause.kind()
	return nil
}

// Tool is tcpretrans.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpretrans",
	Category: "network",
	Summary:  "Show TCP segments that are sent again",
	Description: `Shows each retransmission of TCP, in all network namespaces, with the connection, its state and what made the kernel send again. The segments of all rows are what the kernel counts as RetransSegs (nstat).

They are seen at tcp:tcp_retransmit_skb and, for SYN/ACK, at tcp:tcp_retransmit_synack. Tail loss probes that send the last segment again are among them. With --lossprobe those that send new data instead are shown too, at tcp_send_loss_probe, where that function can be traced: --explain says so. They are no retransmissions.

Segments are sent again when a timer or a packet says so, in whichever task is there. The pid, uid, comm and cgroup are not that one's, but the owner's: of the task that called connect, accept or, for a SYN/ACK, listen. Connections are followed for that from the start of the tool, and those that were there before belong to the first task that holds them. Where there is no owner, as before accept, the pid is 0, the uid 4294967295 and the comm empty.

With --count nothing is shown before the end. --columns chooses by what is counted.`,
	Peers: []string{
		"PID is the owner's; BCC shows the task that happens to run.",
		"LADDR:LPORT T> RADDR:RPORT (BCC) are columns of their own. CAUSE is added.",
		"SYN/ACK is shown, which BCC leaves out.",
		"-l (BCC: all tail loss probes, with a second line for those that send again) adds only those that send new data; the others are there without it, with L in column T.",
		"-4 and -6 go by what is on the wire; for BCC an IPv6 socket that speaks IPv4 is IPv6.",
	},
	Overhead: `What is seen of a connection to know its owner costs more than retransmissions do: of 2,000 connections on the loopback, with the CPUs of the machine busy otherwise, each of the 10 changes of state took 380 ns in both copies of the program. The program at the end of system calls took 65 to 78 ns each time, of which some 20 are the measuring (--stats).`,
	Examples: []string{
		"tcpretrans                                # segments as they are sent again",
		"tcpretrans -c                             # how many of each connection",
		"tcpretrans -c --columns raddr,cause,count # by remote host and cause",
		"tcpretrans --container web --filter 'tcp_state == \"SYN_SENT\"'  # connects of a container that nobody answers",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes holds some 60,000 retransmissions at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &tool.Events[row]{
		Plan:        tool.Plan{Optional: []string{"probe"}, MapEntries: tool.ConnectionMaps()},
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
	}
	if o.Wide {
		e.Widths = map[string]int{"laddr": 39, "raddr": 39}
	}
	return e, nil
}
