// Package tcpstates shows how TCP sockets change their states.
package tcpstates

import (
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpstates.bpf.c

type options struct {
	tool.Ports
	tool.Family
	Time      bool `flag:"time,T" help:"show the time"`
	Timestamp bool `flag:"timestamp,t" help:"show the seconds since the start"`
	Wide      bool `flag:"wide,w" help:"make room for IPv6 addresses"`
	CSV       bool `flag:"csv,s" help:"same as --output csv"`
}

type event struct {
	value.Task
	SKAddr   value.Address `json:"skaddr" col:"SKADDR,width=16" help:"address of the socket (struct sock): the same in all rows of a connection's end, and used again later"`
	Duration value.Span    `json:"duration_ns" col:"MS,width=9" help:"time in the old state (CLOCK_BOOTTIME); absent where its beginning was not seen: the socket was there before the tool, or came to be in it; text shows ms" btf:"duration_ns"`
	value.Ends
	Error     value.Error     `json:"error" col:"ERROR,width=12" help:"name of the errno that the socket has at the change: ECONNREFUSED, ECONNRESET, ETIMEDOUT, …"`
	OldState  value.TCPState  `json:"oldstate" col:"OLDSTATE,width=11" help:"state that it leaves"`
	NewState  value.TCPState  `json:"newstate" col:"NEWSTATE,width=11" help:"state that it comes to"`
	Direction value.Direction `json:"direction" col:"DIRECTION,width=9" help:"active for the end that connected, passive for the one that accepted; absent for listeners, and where the beginning was not seen"`
	_         uint8
}

type row struct {
	event
	Family  uint8         `json:"family" col:"IP,width=2" help:"version of the Internet Protocol on the wire: 4 or 6"`
	Elapsed value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=9,extra" help:"time since the tool was started (CLOCK_BOOTTIME)"`

	start value.Time
}

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	r.Family = r.RAddr.Family()
	r.Elapsed = value.Elapsed(r.Time - r.start)
	return nil
}

// Tool is tcpstates.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpstates",
	Category: "network",
	Summary:  "Show how TCP sockets change their states",
	Description: `Shows each change of state of each TCP socket, of all network namespaces, with the time that it spent in the state before. Each end of a connection has its own.

The changes are those of sock:inet_sock_set_state, seen by two copies of a program, as the kernel leaves one out that is running on the CPU already. It does not show NEW_SYN_RECV and TIME_WAIT, in which a connection has no full socket: a connection is accepted by LISTEN to SYN_RECV, where a copy of the listener is made for it, so the remote end is not filled in yet; and it goes from FIN_WAIT2 to CLOSE where the wait begins. From CLOSE to SYN_SENT the local port may not be chosen yet.

The pid, uid, comm and cgroup are those of the task that called connect, accept or listen, read in that task; of sockets that were there before the tool, those of the first task that holds them. Before a connection is accepted nobody owns it: then the pid is 0, the uid 4294967295 and the comm empty. It is never the task which happened to run when a packet came. The task filter looks at that owner, so it leaves out what happens before accept.`,
	Peers: []string{
		"PID and COMM are the owner's; libbpf-tools and BCC show the task that happens to run, which for a packet that comes is any.",
		"MS is absent where it is not known; libbpf-tools and BCC show 0.",
		"The arrow between OLDSTATE and NEWSTATE is left out: each word of a line is a column.",
		"-T (libbpf-tools: --timestamp) is --time, as BCC's; -t and --timestamp are seconds since the start, as BCC's.",
		"-4 and -6 go by what is on the wire; for libbpf-tools and BCC an IPv6 socket that speaks IPv4 is IPv6, and its addresses are mapped ones.",
		"-s (BCC) is --output csv: its header has the keys of JSON, and nanoseconds as numbers.",
		"-Y (BCC: also to the journal) is not there: tcpstates --output json | systemd-cat -t tcpstates.",
	},
	Overhead: `A connection on the loopback has 10 changes of state, for both ends. Of 2,000 connections, with the CPUs of the machine busy otherwise, a change took 1,010 ns in both copies of the program; that of libbpf-tools beside it 7,700 ns. The program at the end of system calls took 65 to 78 ns each time, of which some 20 are the measuring (--stats).`,
	Examples: []string{
		"tcpstates                                                  # every change of every socket",
		"tcpstates -L 443 --filter 'newstate == \"CLOSE\" and error != \"\"'  # connections to port 443 that failed",
		"tcpstates --filter 'oldstate == \"CLOSE_WAIT\" and duration_ns > 60000000000'  # closed long after the other end",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes holds some 40,000 changes at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	start, err := system.BootNow()
	if err != nil {
		return nil, err
	}
	e := &tool.Events[row]{
		Plan:        tool.Plan{MapEntries: tool.ConnectionMaps()},
		Columns:     o.columns(),
		BufferBytes: bufferBytes,
		Row:         row{start: value.Time(start)},
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
	}
	if o.CSV {
		e.Output = "csv"
	}
	if o.Wide {
		e.Widths = map[string]int{"laddr": 39, "raddr": 39}
	}
	return e, nil
}

func (o *options) columns() []string {
	var cols []string
	if o.Time {
		cols = append(cols, "time")
	}
	if o.Timestamp {
		cols = append(cols, "elapsed_ns")
	}
	return append(cols, "skaddr", "pid", "comm", "laddr", "lport", "raddr", "rport", "oldstate", "newstate", "duration_ns")
}
