// Package tcplife traces the lifetimes of TCP connections.
package tcplife

import (
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcplife.bpf.c -type row_state

type options struct {
	tcp.Ports
	tcp.Family
	Existing bool `flag:"existing" help:"list connections that are open at the start, and show them again when they close"`
	Active   bool `flag:"active" help:"list connections that are still open at the end"`
	tcp.Times
	tcp.Wide
	tcp.CSV
}

type event struct {
	value.Task
	TxBytes     value.Size `json:"tx_bytes" col:"TX_KB,width=6" help:"payload sent, each byte counted once; text shows units of 1,024"`
	RxBytes     value.Size `json:"rx_bytes" col:"RX_KB,width=6" help:"payload received in order; text shows units of 1,024"`
	Duration    value.Span `json:"duration_ns" col:"MS,width=8" help:"time from the SYN to TCP_CLOSE (CLOCK_BOOTTIME), which is TIME_WAIT for the end that closes first; of the connecting end from sending the SYN (with TCP_FASTOPEN_CONNECT this happens when the first data is sent, not at connect), of the accepting end from sending the SYN/ACK that was answered (that is, from receiving the SYN, unless the SYN/ACK was retransmitted); absent if partial is true; text shows ms" btf:"duration_ns"`
	Established value.Span `json:"established_ns" col:"EST_MS,width=8" help:"time from the end of the handshake on this end to TCP_CLOSE (CLOCK_BOOTTIME); absent if it was not observed or not reached; text shows ms" btf:"established_ns"`
	value.Ends
	Error       value.Error     `json:"error" col:"ERROR,width=12" help:"name of the socket's errno at the end: ECONNREFUSED, ECONNRESET, ETIMEDOUT, …"`
	Retransmits uint32          `json:"retransmits" col:"RETRANS,width=7,right" help:"segments that this end retransmitted, including SYN and SYN/ACK"`
	RTT         uint32          `json:"rtt_us" col:"RTT_US,width=7,right" help:"smoothed round-trip time of the kernel at the end, in us; 0 if not measured" btf:"rtt_us"`
	State       rowState        `json:"state" col:"STATE,width=8" help:"closed; existing or open: the connection is still open, at the start (--existing) or the end (--active) of the run, and all numbers are preliminary"`
	TCPState    value.TCPState  `json:"tcp_state" col:"TCP_STATE,width=11" help:"state before TCP_CLOSE: LAST_ACK if the other end closed first, FIN_WAIT2 or CLOSING if this end did, ESTABLISHED or CLOSE_WAIT after a reset, SYN_SENT for a connection that was not established; the current state of an open connection"`
	Direction   value.Direction `json:"direction" col:"DIRECTION,width=9" help:"active for the end that connected, passive for the end that accepted; absent if the start was not observed"`
	Partial     bool            `json:"partial" col:"PARTIAL,width=7" help:"whether the start was not observed because the connection is older than the run"`
}

type row struct {
	event
	tcp.Version
	source.Elapsed
}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	r.Family = r.RAddr.Family()
	return nil
}

// Tool is the definition of tcplife.
var Tool = tool.Define(tool.Spec{
	Name:     "tcplife",
	Category: "network",
	Summary:  "Trace TCP connection lifetimes: duration, bytes and process",
	Description: `Shows each TCP connection in all network namespaces when it ends, with its owner, addresses, transferred payload and duration. A connection between two processes of this machine has two rows, one per end. A failed connect has a row too.

Connections are traced at sock:inet_sock_set_state, by two copies of a program, because the kernel skips a program that is already running on the same CPU. pid, uid, comm and cgroup are those of the task that called connect or accept, read in the context of that task. If neither was observed, they are those of the task that first closed the connection. If there is no such task either, such as for a connection that was reset before it was accepted, pid is 0, uid is 4294967295 and comm is empty. They are never those of a task that was current when a packet arrived. All subflows of an MPTCP connection have the owner of the first one. The task filters test this owner. Ports and addresses are tested when the connection ends, so -L also matches outgoing connections.

accept is traced at the return of inet_csk_accept. If that function cannot be traced, accept is traced at the return of the system call, by a program that runs at the end of every system call and returns immediately for other calls. A connection accepted by io_uring then belongs to the task that closes it.

Connections that are open at the start of the tool are shown only with --existing: they are listed first, with the first task that holds the socket as their owner, and shown again when they close. Their duration is unknown, therefore it is absent and partial is true. Connections that no task holds (not accepted yet, or already closed) are listed only for the network namespace of the tool.`,
	Peers: []string{
		"MS is the time since the SYN. libbpf-tools and BCC measure from the end of the handshake, which is established_ns here.",
		"TX_KB and RX_KB are payload. libbpf-tools and BCC count an acknowledged or received SYN or FIN as a byte, and of the sent data only what was acknowledged.",
		"PID and COMM of an accepted connection are equal to those of the peers only if the process closes it after the other end. Otherwise the peers show the current task instead of the owner.",
		"-L (libbpf-tools, BCC) with a port that the kernel chooses: the peers lose the owner of an outgoing connection.",
		"-4 and -6 select by the protocol on the wire; libbpf-tools and BCC treat an IPv6 socket that carries IPv4 as IPv6 and show mapped addresses.",
		"The title of -T is TIME(s), as in libbpf-tools; BCC has TIME.",
		"-s (BCC) is --output csv: its header has the keys of JSON, and its values are bytes and nanoseconds.",
	},
	Overhead: "A loopback connection has 10 state changes, for both ends together. A state change took 500 to 670 ns in both copies of the program (5,000 connections, otherwise busy CPUs), that of libbpf-tools, running at the same time, 2,200 to 2,700 ns. The program at the end of system calls took 61 to 107 ns per call, of which about 20 are the measurement (--stats).",
	Examples: []string{
		"tcplife                                  # connections when they end",
		"tcplife -D 5432 --container web          # connections of a container to a database",
		"tcplife --existing --active              # including those open at the start and the end",
		`tcplife --filter 'error == "ETIMEDOUT"'  # connections that timed out`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 40,000 connections that end at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{MapEntries: tcp.ConnectionMaps()},
		Columns:     o.columns(),
		Headers:     o.headers(),
		BufferBytes: bufferBytes,
		Delay:       100 * time.Millisecond,
	}
	e.Widths = o.Widths("laddr", "raddr")
	if o.Existing {
		e.Before = []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}}
	}
	if o.Active {
		e.After = []tool.Iterator{{Program: "open_conns", Map: "conns"}}
	}
	return e, nil
}

// headers returns the titles of the peers: the time of day has that of libbpf-tools, but with seconds since
// the start that of BCC.
func (o *options) headers() map[string]string {
	if o.Timestamp {
		return nil
	}
	return map[string]string{"time": "TIME(s)"}
}

func (o *options) columns() []string {
	cols := o.Times.Columns()
	cols = append(cols, "pid", "comm", "laddr", "lport", "raddr", "rport", "tx_bytes", "rx_bytes", "duration_ns")
	if o.Existing || o.Active {
		cols = append(cols, "state")
	}
	return cols
}
