// Package tcpaccept shows the TCP connections that tasks accept.
package tcpaccept

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpaccept.bpf.c

type options struct {
	Ports flags.Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	tool.Family
	Time      bool `flag:"time,T" help:"show the time"`
	Timestamp bool `flag:"timestamp,t" help:"show the seconds since the start"`
	Wide      bool `flag:"wide,w" help:"make room for IPv6 addresses"`
}

type event struct {
	value.Task
	value.Ends
	Backlog    count `json:"backlog" col:"QUEUE,width=5,right" help:"connections that still wait for accept at the listener; absent where that could not be looked at"`
	BacklogMax count `json:"backlog_max" col:"MAX,width=5,right" help:"connections that may wait at the listener, as listen was told (net.core.somaxconn at most); absent likewise"`
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

// Tool is tcpaccept.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpaccept",
	Category: "network",
	Summary:  "Show the TCP connections that tasks accept",
	Description: `Shows each TCP connection that a task accepts, in all network namespaces, with the task and both ends. The local port is the listener's. A connection that is never accepted is not shown, nor is an accept that fails.

accept is seen where inet_csk_accept returns, also for io_uring. Where that function cannot be traced, it is seen as the system call returns, by a program that runs at the end of every system call and ends at once for the others. Then a connection that io_uring accepts is not shown. --explain says which of the two this kernel has.

Of a listener by MPTCP, which programs in Go use, and of its connections, the addresses are those of the first TCP subflow.`,
	Peers: []string{
		"-4 and -6 go by what is on the wire; for BCC an IPv6 socket that speaks IPv4 is IPv6, and its addresses are mapped ones.",
		"-T is --time and -t --timestamp, as BCC's; libbpf-tools has no tcpaccept.",
		"--cgroupmap and --mntnsmap (BCC: ids in a pinned map) are --cgroup and --container.",
	},
	Overhead: `Where accept is seen as system calls return, the program there took 78 ns each time while 2,000 connections were made and the CPUs of the machine were busy otherwise; some 20 ns of that are the measuring (--stats).`,
	Examples: []string{
		"tcpaccept                                      # connections as they are accepted",
		"tcpaccept -P 80,443 --container web            # those of a container's web server",
		"tcpaccept --filter 'backlog * 2 > backlog_max'   # those at listeners whose queue is half full",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes holds some 70,000 connections at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	start, err := system.BootNow()
	if err != nil {
		return nil, err
	}
	e := &tool.Events[row]{
		Columns:     o.columns(),
		BufferBytes: bufferBytes,
		Row:         row{start: value.Time(start)},
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
	return append(cols, "pid", "comm", "family", "raddr", "rport", "laddr", "lport")
}
