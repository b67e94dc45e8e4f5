// Package tcpstates traces state changes of TCP sockets.
package tcpstates

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpstates.bpf.c

type options struct {
	tcp.Ports
	tcp.Family
	tcp.Times
	tcp.Wide
	tcp.CSV
}

type event struct {
	value.Task
	SKAddr   value.Address `json:"skaddr" col:"SKADDR,width=16" help:"address of the socket (struct sock): the same in all rows of one end of a connection; can be reused later"`
	Duration value.Span    `json:"duration_ns" col:"MS,width=9" help:"time in the old state (CLOCK_BOOTTIME); absent if its start was not observed, because the socket existed before the run or was created in that state; text shows ms" btf:"duration_ns"`
	value.Ends
	Error     value.Error     `json:"error" col:"ERROR,width=12" help:"name of the socket's errno at the change: ECONNREFUSED, ECONNRESET, ETIMEDOUT, …"`
	OldState  value.TCPState  `json:"oldstate" col:"OLDSTATE,width=11" help:"state before the change"`
	NewState  value.TCPState  `json:"newstate" col:"NEWSTATE,width=11" help:"state after the change"`
	Direction value.Direction `json:"direction" col:"DIRECTION,width=9" help:"active for the end that connected, passive for the end that accepted; absent for listeners, and if the start was not observed"`
	_         uint8
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

// Tool is the definition of tcpstates.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpstates",
	Category: "network",
	Summary:  "Trace TCP socket state changes with the time in each state",
	Description: `Shows each state change of TCP sockets in all network namespaces, with the time spent in the previous state. The two ends of a local connection are separate sockets.

State changes are traced at sock:inet_sock_set_state, by two copies of a program, because the kernel skips a program that is already running on the same CPU. This tracepoint does not include NEW_SYN_RECV and TIME_WAIT, in which a connection has no full socket. An accepted connection starts with a change from LISTEN to SYN_RECV, when a copy of the listener is created, so its remote address is not set yet. At the start of TIME_WAIT the socket changes from FIN_WAIT2 to CLOSE. In changes from CLOSE to SYN_SENT the local port may not be set yet.

pid, uid, comm and cgroup are those of the task that called connect, accept or listen, read in the context of that task; of sockets that existed before the run, those of the first task that holds them. A connection has no owner before it is accepted: pid is then 0, uid is 4294967295 and comm is empty. They are never those of a task that was current when a packet arrived. The task filters test this owner, so they exclude changes before accept.`,
	Peers: []string{
		"PID and COMM are those of the owner; libbpf-tools and BCC show the current task, which is arbitrary when a packet arrives.",
		"MS is absent if it is unknown; libbpf-tools and BCC show 0.",
		"There is no arrow between OLDSTATE and NEWSTATE, because each word of a line is a column.",
		"-T (libbpf-tools: --timestamp) is --time, as in BCC; -t and --timestamp show seconds since the start, as in BCC.",
		"-4 and -6 select by the protocol on the wire; libbpf-tools and BCC treat an IPv6 socket that carries IPv4 as IPv6 and show mapped addresses.",
		"-s (BCC) is --output csv: its header has the keys of JSON, and its times are nanoseconds.",
		"-Y (BCC: also log to the journal) is not supported: use tcpstates --output json | systemd-cat -t tcpstates.",
	},
	Overhead: "A loopback connection has 10 state changes, for both ends together. A state change took 1,010 ns in both copies of the program (2,000 connections, otherwise busy CPUs), that of libbpf-tools, running at the same time, 7,700 ns. The program at the end of system calls took 65 to 78 ns per call, of which about 20 are the measurement (--stats).",
	Examples: []string{
		"tcpstates                                                  # all state changes",
		`tcpstates -L 443 --filter 'newstate == "CLOSE" and error != ""'  # failed connections to port 443`,
		`tcpstates --filter 'oldstate == "CLOSE_WAIT" and duration_ns > 60000000000'  # closed over a minute after the other end`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 40,000 changes at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{MapEntries: tcp.ConnectionMaps()},
		Columns:     o.columns(),
		BufferBytes: bufferBytes,
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
	}
	e.Widths = o.Widths("laddr", "raddr")
	return e, nil
}

func (o *options) columns() []string {
	cols := o.Times.Columns()
	return append(cols, "skaddr", "pid", "comm", "laddr", "lport", "raddr", "rport", "oldstate", "newstate", "duration_ns")
}
