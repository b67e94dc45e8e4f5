// Package tcpaccept traces accepted TCP connections.
package tcpaccept

import (
	"errors"
	"slices"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpaccept.bpf.c

type options struct {
	Ports flags.Ports `flag:"port,P" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	tcp.Family
	tcp.Times
	tcp.Wide
}

type event struct {
	value.Task
	value.Ends
	Backlog    count `json:"backlog" col:"QUEUE,width=5,right" help:"connections still waiting for accept at the listener; absent if it could not be read"`
	BacklogMax count `json:"backlog_max" col:"MAX,width=5,right" help:"maximum number of waiting connections, as given to listen(2), limited by net.core.somaxconn; absent if it could not be read"`
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

// Tool is the definition of tcpaccept.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpaccept",
	Category: "network",
	Summary:  "Trace accepted (inbound) TCP connections",
	Description: `Shows each accepted TCP connection, in all network namespaces, with the accepting task and both addresses. The local port is that of the listener. Connections that are never accepted are not shown, nor are accept calls that fail.

accept is traced at the return of inet_csk_accept, including accepts by io_uring. If that function cannot be traced, accept is traced at the return of the system call, by a program that runs at the end of every system call and returns immediately for other calls; connections accepted by io_uring are then missed. --explain shows which hook is used.

For MPTCP listeners, which Go programs use, and their connections, the addresses are those of the first TCP subflow.`,
	Peers: []string{
		"-4 and -6 select by the protocol on the wire; BCC treats an IPv6 socket that carries IPv4 as IPv6 and shows mapped addresses.",
		"-T is --time and -t is --timestamp, as in BCC; libbpf-tools has no tcpaccept.",
		"--cgroupmap and --mntnsmap are those of BCC: they select by the keys of a pinned map. --cgroup and --container need no map.",
	},
	Overhead: "If accept is traced at the return of system calls, the program there took 78 ns per system call during 2,000 connections on otherwise busy CPUs; about 20 ns of that are the measurement (--stats).",
	Examples: []string{
		"tcpaccept                                      # accepted connections",
		"tcpaccept -P 80,443 --container web            # connections to the web server of a container",
		"tcpaccept --filter 'backlog * 2 > backlog_max'   # connections of listeners whose queue is half full",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 70,000 connections at once.
const bufferBytes = 8 << 20

// Check returns an error for port 0, on which no socket can listen.
func (o *options) Check() error {
	if slices.Contains(o.Ports, 0) {
		return errors.New("--port 0: no socket can listen on this port")
	}
	return nil
}

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns:     o.columns(),
		BufferBytes: bufferBytes,
	}
	e.Widths = o.Widths("laddr", "raddr")
	return e, nil
}

func (o *options) columns() []string {
	cols := o.Times.Columns()
	return append(cols, "pid", "comm", "family", "raddr", "rport", "laddr", "lport")
}
