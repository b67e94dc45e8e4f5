// Package tcplife shows TCP connections and how long they lasted.
package tcplife

import (
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcplife.bpf.c

type options struct {
	tool.Ports
	tool.Family
	Existing  bool `flag:"existing" help:"list the connections that are open at the start, and show them too when they close"`
	Active    bool `flag:"active" help:"list the connections that are still open at the end"`
	Time      bool `flag:"time,T" help:"show the time"`
	Timestamp bool `flag:"timestamp,t" help:"show the seconds since the start"`
	Wide      bool `flag:"wide,w" help:"make room for IPv6 addresses"`
	CSV       bool `flag:"csv,s" help:"same as --output csv"`
}

type event struct {
	value.Task
	TxBytes     value.Size `json:"tx_bytes" col:"TX_KB,width=6" help:"payload that was sent, each byte once; text shows units of 1,024"`
	RxBytes     value.Size `json:"rx_bytes" col:"RX_KB,width=6" help:"payload that was received in order; text shows units of 1,024"`
	Duration    value.Span `json:"duration_ns" col:"MS,width=8" help:"time since the SYN was sent, at the end that accepts since the SYN/ACK was sent that was answered (at once when the SYN came, unless it was sent again), until TCP_CLOSE, which is TIME_WAIT for the end that closes first (CLOCK_BOOTTIME); absent where partial is true; text shows ms" btf:"duration_ns"`
	Established value.Span `json:"established_ns" col:"EST_MS,width=8" help:"time since the handshake was over on this end, until TCP_CLOSE (CLOCK_BOOTTIME); absent where that was not seen, or never came; text shows ms" btf:"established_ns"`
	value.Ends
	Error       value.Error     `json:"error" col:"ERROR,width=12" help:"name of the errno that the socket had at the end: ECONNREFUSED, ECONNRESET, ETIMEDOUT, …"`
	Retransmits uint32          `json:"retransmits" col:"RETRANS,width=7,right" help:"segments that this end sent again, SYN and SYN/ACK among them"`
	RTT         uint32          `json:"rtt_us" col:"RTT_US,width=7,right" help:"the kernel's smoothed round-trip time at the end, in us; 0 where none was measured" btf:"rtt_us"`
	State       rowState        `json:"state" col:"STATE,width=8" help:"closed; or existing or open: the connection is still there, at the start (--existing) or the end (--active), and all numbers are those so far"`
	TCPState    value.TCPState  `json:"tcp_state" col:"TCP_STATE,width=11" help:"state before TCP_CLOSE: LAST_ACK where the other end closed first, FIN_WAIT2 or CLOSING where this one did, ESTABLISHED or CLOSE_WAIT for a reset, SYN_SENT for a connection that never was; of an open one, its state"`
	Direction   value.Direction `json:"direction" col:"DIRECTION,width=9" help:"active for the end that connected, passive for the one that accepted; absent where the beginning was not seen"`
	Partial     bool            `json:"partial" col:"PARTIAL,width=7" help:"the beginning was not seen, as the connection was there before the tool"`
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

// Tool is tcplife.
var Tool = tool.Define(tool.Spec{
	Name:     "tcplife",
	Category: "network",
	Summary:  "Show TCP connections and how long they lasted",
	Description: `Shows each TCP connection of all network namespaces as it ends, with its owner, its ends, the payload it has moved and how long it lasted. A connection between two processes of this machine is two rows, one for each end. A connect that fails is a row too.

Connections are followed at sock:inet_sock_set_state, by two copies of a program, as the kernel leaves one out that is running on the CPU already. The pid, uid, comm and cgroup are those of the task that called connect or accept, read in that task. Where neither could be seen, they are those of the task that closed the connection first. Where there was no such task either, as for a connection that was reset before it was accepted, the pid is 0, the uid 4294967295 and the comm empty: it is never that of a task which happened to run when a packet came. The task filter looks at that owner, and ports and addresses are looked at when the connection ends, so that -L also finds connections that are made from here.

accept is seen where inet_csk_accept returns. Where that function cannot be traced, it is seen as the system call returns, by a program that runs at the end of every system call and ends at once for the others. Then a connection that io_uring accepts belongs to the task that closes it.

Connections that are open when the tool starts are left out, unless --existing is given: then they are listed first, with the first task that holds the socket as the owner, and shown again when they close. Their duration is not known, so it is absent and partial is true. Those that no task holds (not accepted yet, or closed already) are listed for the tool's own network namespace only.`,
	Peers: []string{
		"MS is the time since the SYN. libbpf-tools and BCC count from when the handshake was over, which is established_ns here.",
		"TX_KB and RX_KB are payload. libbpf-tools and BCC count a SYN or FIN that was acknowledged or received as a byte, and of what was sent only what was acknowledged.",
		"PID and COMM of a connection that was accepted are the peers' only where the process closes after the other end. Else they show the task that happened to run, where we show the owner.",
		"-L (libbpf-tools, BCC) with a port that the kernel chooses: the peers lose the owner of a connection that is made from here.",
		"-4 and -6 go by what is on the wire; for libbpf-tools and BCC an IPv6 socket that speaks IPv4 is IPv6, and its addresses are mapped ones.",
		"-T is titled TIME(s), as libbpf-tools', where BCC has TIME.",
		"-s (BCC) is --output csv: its header has the keys of JSON, and bytes and nanoseconds as numbers.",
	},
	Overhead: `A connection on the loopback has 10 changes of state, for both ends. Of 5,000 connections, with the CPUs of the machine busy otherwise, a change took 500 to 670 ns, in both copies of the program; that of libbpf-tools beside it 2,200 to 2,700 ns. The program at the end of system calls took 61 to 107 ns each time, of which some 20 are the measuring (--stats).`,
	Examples: []string{
		"tcplife                                  # connections as they end",
		"tcplife -D 5432 --container web          # those of a container to a database",
		"tcplife --existing --active              # also those open at the start and at the end",
		"tcplife --filter 'error == \"ETIMEDOUT\"'  # those that timed out",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes holds some 40,000 connections that end at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	start, err := system.BootNow()
	if err != nil {
		return nil, err
	}
	e := &tool.Events[row]{
		Plan:        tool.Plan{MapEntries: tool.ConnectionMaps()},
		Columns:     o.columns(),
		Headers:     map[string]string{"time": "TIME(s)"},
		BufferBytes: bufferBytes,
		Row:         row{start: value.Time(start)},
	}
	if o.CSV {
		e.Output = "csv"
	}
	if o.Wide {
		e.Widths = map[string]int{"laddr": 39, "raddr": 39}
	}
	if o.Existing {
		e.Before = []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}}
	}
	if o.Active {
		e.After = []tool.Iterator{{Program: "open_conns", Map: "conns"}}
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
	cols = append(cols, "pid", "comm", "laddr", "lport", "raddr", "rport", "tx_bytes", "rx_bytes", "duration_ns")
	if o.Existing || o.Active {
		cols = append(cols, "state")
	}
	return cols
}
