// Package tcptracer traces connects, accepts and closes of TCP connections.
package tcptracer

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcptracer.bpf.c -type kind

type options struct {
	tcp.Family
	NetNS     uint32 `flag:"netns,N" also:"netns-id" arg:"INODE" min:"1" bpf:"targ_netns" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
	Timestamp bool   `flag:"timestamp,t" help:"show seconds since the start"`
	UID       bool   `flag:"print-uid,U" help:"show the user ID"`
	tcp.Wide
}

type event struct {
	value.Task
	value.Ends
	_    uint32
	Kind kind `json:"kind" col:"T,width=1" help:"connect, accept or close; text and CSV show C, A or X"`
	_    [3]uint8
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

// Tool is the definition of tcptracer.
var Tool = tool.Define(tool.Spec{
	Name:     "tcptracer",
	Category: "network",
	Summary:  "Trace TCP connections: connect, accept and close",
	Description: `Shows each established TCP connection, in all network namespaces, when it is connected (C), accepted (A) and closed (X). A connection between two processes of this machine has rows of both ends. Connects that fail are not shown: see tcpconnect.

C is the time when the handshake of the connecting end is complete, A the return of accept. X is the first of these: this end closes the connection or shuts down sending (FIN), it resets it, it is reset by the other end, or it times out. Each C and each A is followed by at most one X.

pid, uid, comm and cgroup are those of the task that called connect or accept, read in the context of that task, also for X. A connection opened before the start of the tool belongs to the first task with a file descriptor of it. The task filters test this owner. Connections that are never accepted have no rows of the accepting end. A connection that was reset before it is accepted has both rows, A and X, at accept.

C and X are traced at sock:inet_sock_set_state, by two copies of a program, because the kernel skips a program that is already running on the same CPU. accept is traced at the return of inet_csk_accept. If that function cannot be traced, accept is traced at the return of the system call, by a program that runs at the end of every system call and returns immediately for other calls. For a connection accepted by io_uring, A is then missed, and X has the task that closes it.`,
	Peers: []string{
		"PID of X is that of the owner. libbpf-tools and BCC show the task that closes the socket, so a socket that is passed to another process, or inherited, has another one.",
		"X is shown when the connection ends, also by a reset; libbpf-tools and BCC show it when the socket is closed.",
		"-v (BCC: a column NETNS) is --columns +netns; -N also exists.",
		"-4 and -6 select by the protocol on the wire; libbpf-tools and BCC treat an IPv6 socket that carries IPv4 as IPv6 and show mapped addresses.",
	},
	Examples: []string{
		"tcptracer                         # connects, accepts and closes",
		"tcptracer -t -U -p 1234           # of one process, with time and user",
		"tcptracer --container web --filter 'kind == \"accept\"'  # connections to a container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u", "cgroupmap": "C", "mntnsmap": "M"},
}, options{}, build)

// bufferBytes is enough for about 60,000 rows at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{MapEntries: tcp.ConnectionMaps()},
		Columns:     o.columns(),
		Headers:     map[string]string{"laddr": "SADDR", "raddr": "DADDR", "lport": "SPORT", "rport": "DPORT"},
		BufferBytes: bufferBytes,
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
	}
	e.Widths = o.Widths("laddr", "raddr")
	return e, nil
}

func (o *options) columns() []string {
	var cols []string
	if o.Timestamp {
		cols = append(cols, "elapsed_ns")
	}
	if o.UID {
		cols = append(cols, "uid")
	}
	return append(cols, "kind", "pid", "comm", "family", "laddr", "raddr", "lport", "rport")
}
