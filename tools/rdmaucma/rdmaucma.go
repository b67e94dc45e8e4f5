// Package rdmaucma traces events of RDMA connections of programs.
package rdmaucma

import (
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh rdmaucma.bpf.c

type options struct {
	Debug bool `flag:"debug,D" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
}

type event struct {
	value.Task
	Kind      uint32
	Status    int32 `json:"status" col:"STATUS,width=6,right" help:"0, -errno of an error, or the reason of a rejection as a positive number"`
	PortSpace uint32
	LocalEnd  end
	RemoteEnd end
	_         uint32
}

// end mirrors struct end.
type end struct {
	Addr   value.Addr
	Port   uint16
	Family uint16
}

type row struct {
	event
	Event  string      `json:"event" col:"EVENT,width=16" help:"type of the event: the name in enum rdma_cm_event_type without RDMA_CM_EVENT_, in lower case, or its number"`
	Error  value.Error `json:"error" col:"ERROR,width=12" help:"name of the errno of a negative status"`
	Family value.Count `json:"family" col:"FAMILY,width=6,right" help:"IP version of the addresses: 4 or 6; absent if they are not IP addresses"`
	Space  string      `json:"port_space" col:"SPACE,width=5" help:"port space of the connection: tcp, udp, ipoib, ib, or its number"`
	LAddr  addr        `json:"laddr" col:"LADDR,width=15" help:"local address at the time of the event; absent before the address is known"`
	LPort  value.Count `json:"lport" col:"LPORT,width=5,right" help:"local port; absent without an address"`
	RAddr  addr        `json:"raddr" col:"RADDR,width=15" help:"remote address; absent if there is none, as for a listener"`
	RPort  value.Count `json:"rport" col:"RPORT,width=5,right" help:"remote port; absent without an address"`
}

// addr is an address that can be missing.
type addr struct {
	value.Addr
	known bool
}

func (v *addr) Absent() bool { return !v.known }

func (v *addr) Any() any {
	if v.Absent() {
		return ""
	}
	return v.Addr.Any()
}

// events are the names of enum rdma_cm_event_type.
var events = [...]string{
	"addr_resolved", "addr_error", "route_resolved", "route_error", "connect_request", "connect_response", "connect_error",
	"unreachable", "rejected", "established", "disconnected", "device_removal", "multicast_join", "multicast_error",
	"addr_change", "timewait_exit", "addrinfo_resolved", "addrinfo_error", "user", "internal",
}

// spaces are the names of enum rdma_ucm_port_space.
var spaces = map[uint32]string{0x0002: "ipoib", 0x013f: "ib", 0x0106: "tcp", 0x0111: "udp"}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	r.Event, r.Error = fmt.Sprint(r.Kind), value.Error(r.Status)
	if int(r.Kind) < len(events) {
		r.Event = events[r.Kind]
	}
	var ok bool
	if r.Space, ok = spaces[r.PortSpace]; !ok {
		r.Space = fmt.Sprintf("%#x", r.PortSpace)
	}
	r.LAddr, r.LPort = r.LocalEnd.columns()
	r.RAddr, r.RPort = r.RemoteEnd.columns()
	version := max(r.LocalEnd.Family, r.RemoteEnd.Family)
	r.Family = value.Count{N: uint64(version), Given: version > 0}
	return nil
}

func (e *end) columns() (addr, value.Count) {
	known := e.Family > 0
	return addr{e.Addr, known}, value.Count{N: uint64(e.Port), Given: known}
}

// Tool is the definition of rdmaucma.
var Tool = tool.Define(tool.Spec{
	Name:     "rdmaucma",
	Category: "network",
	Summary:  "Trace RDMA connection manager events of programs: resolved, connected, rejected, disconnected",
	Description: `Shows each event that the RDMA connection manager delivers to a program through /dev/infiniband/rdma_cm (librdmacm): addresses and routes that are resolved, connection requests, established and closed connections, errors. It shows why a connection over InfiniBand, RoCE or iWARP does not come about.

An event is traced when the kernel puts it into the queue of the program (ucma_event_handler), also if the program never reads it. That happens in the kernel's own threads, or in the context of the call that causes the event. PID and COMM are those of this task, often a kworker, and not those of the program; so are the task filter and the container columns. Local and remote addresses identify the connection. Connections of the kernel itself, such as those of NFS or NVMe over RDMA, are not shown.

The kernel function is in the module rdma_ucm, which must be loaded (CONFIG_INFINIBAND_USER_ACCESS). It needs Linux 5.11, which describes the types of modules, and CONFIG_KPROBES.`,
	Peers: []string{
		"The columns of BCC are TIME, EVENT, FAMILY, local and remote address; here ports have their own columns.",
		"The status and its errno exist here only.",
		"-D stands for --verbose; there is no program source to print.",
	},
	Examples: []string{
		"rdmaucma                # all events",
		"rdmaucma --filter 'status != 0' --columns +error  # failures with their reason",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		BufferBytes: 1 << 20,
		Columns:     []string{"time", "event", "family", "laddr", "lport", "raddr", "rport", "status"},
	}, nil
}
