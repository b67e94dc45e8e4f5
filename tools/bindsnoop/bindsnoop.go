// Package bindsnoop traces bind() calls of IP sockets.
package bindsnoop

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bindsnoop.bpf.c

type options struct {
	Ports    flags.Ports `flag:"ports,P" also:"port" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	Failed   bool        `flag:"failed,x" bpf:"targ_failed" help:"show failed calls too"`
	Errors   bool        `flag:"errors,E" sets:"failed=true" help:"same as --failed"`
	Count    bool        `flag:"count" help:"count the calls by protocol, address and port instead of showing them"`
	PrintUID bool        `flag:"print-uid,U" help:"show the user ID"`
	tcp.Family
	tcp.Times
	tcp.Wide
}

type event struct {
	value.Task
	End        end    `btf:"local_end"`
	Ret        int32  `json:"ret" col:"RET,width=4,right" help:"return value: 0, or -errno"`
	IfIndex    uint32 `json:"ifindex" col:"IF,width=3,right" help:"index of the network interface that the socket is bound to (SO_BINDTODEVICE); 0 without one"`
	WantedPort int32
	Bits       uint32 `btf:"options"`
	IPVersion  uint32 `btf:"family"`
	HasAddr    uint32
}

// end mirrors struct local_end of sockset.bpf.h.
type end struct {
	LAddr    value.Addr
	NetNS    uint32
	LPort    uint16
	Protocol value.Protocol
}

type row struct {
	event
	source.Elapsed
	LAddr    addr           `json:"laddr" col:"ADDR,width=15" help:"local address after the call; the requested one if the call failed, absent if that could not be read; an IPv4-mapped IPv6 address is shown as IPv4"`
	NetNS    uint32         `json:"netns" col:"NETNS,width=10" help:"network namespace: inode number of /proc/PID/ns/net"`
	LPort    value.Count    `json:"lport" col:"PORT,width=5" help:"local port after the call, 0 without one; the requested one if the call failed, absent if that could not be read"`
	Protocol value.Protocol `json:"protocol" col:"PROTO,width=5" help:"protocol of the socket: tcp, udp, mptcp, icmp and so on, or its number; text shows capital letters"`
	tcp.Version
	Wanted  value.Count `json:"requested_port" col:"REQPORT,width=7,right" help:"port in the arguments of the call; 0 lets the kernel choose one; absent for io_uring, and if it could not be read"`
	Options string      `json:"options" col:"OPTS,width=5" help:"options of the socket, each a letter or a dot: F IP_FREEBIND, T IP_TRANSPARENT, N IP_BIND_ADDRESS_NO_PORT, R SO_REUSEADDR, r SO_REUSEPORT"`
	Error   value.Error `json:"error" col:"ERROR,width=13" help:"name of the errno of a failed call"`
}

// addr is an address that can be unknown.
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

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	letters := []byte("FTNRr")
	for i := range letters {
		if r.Bits>>i&1 == 0 {
			letters[i] = '.'
		}
	}
	r.Options, r.Error, r.Family = string(letters), value.Error(r.Ret), uint8(r.IPVersion)
	r.LAddr, r.LPort = addr{r.End.LAddr, r.HasAddr != 0}, value.Count{N: uint64(r.End.LPort), Given: r.HasAddr != 0}
	r.NetNS, r.Protocol = r.End.NetNS, r.End.Protocol
	r.Wanted = value.Count{N: uint64(max(r.WantedPort, 0)), Given: r.WantedPort >= 0}
	return nil
}

// Tool is the definition of bindsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "bindsnoop",
	Category: "network",
	Summary:  "Trace bind() calls: TCP and UDP ports and addresses that processes bind sockets to",
	Description: `Shows each successful bind(2) of an IPv4 or IPv6 socket when it returns, in all network namespaces, with the address and port that the socket then has, and its options. With -x, failed calls are shown too, with the address that the task requested.

If a task requests port 0, the kernel chooses one; the row shows the chosen port. It is 0 for sockets with IP_BIND_ADDRESS_NO_PORT, which get their port when they connect, and for raw sockets. The port that the task requested is the column requested_port. Sockets that listen or connect without a call of bind have no row.

Calls are traced at the end of system calls (raw_syscalls:sys_exit), of 64-bit and 32-bit tasks, by a program that returns immediately for other calls. Requests of io_uring (kernel 6.11 and later) are traced when they complete (hook uring; see --explain), except successful ones that suppress their completion; the requested address of a failed one is unknown. Address and port are also unknown if the call failed and the task's address could not be read, or was of another family. Failed calls with an unknown port are not shown with -P. A successful call whose descriptor another thread closes before it returns has no row, but is counted (closed).`,
	Peers: []string{
		"PORT is the port that the socket has after the call. libbpf-tools and BCC show the one before it was chosen, which is often 0.",
		"-x, --failed is that of libbpf-tools and -E, --errors that of BCC. --ports is that of libbpf-tools and --port that of BCC.",
		"-T shows the time and -t seconds since the start, as in tcpaccept and in BCC. libbpf-tools shows the time with -t.",
		"--count groups by protocol, address and port.",
		"Requests of io_uring and sockets of all IP protocols are shown. Neither kprobes nor fentry are needed.",
	},
	Examples: []string{
		"bindsnoop                   # successful calls",
		"bindsnoop -x --filter 'error == \"EADDRINUSE\"'  # ports that are in use already",
		"bindsnoop -P 80,443 -U      # two ports, with the user",
		"bindsnoop --count           # calls by address and port",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "uid": "u", "cgroup": "c"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan:        tool.Plan{Optional: []string{"uring"}},
		Columns:     o.columns(),
		BufferBytes: 8 << 20, // about 70,000 calls
	}
	if o.Count {
		e.Count = []string{"protocol", "laddr", "lport"}
		e.Headers = map[string]string{"laddr": "LADDR", "lport": "LPORT", "count": "BINDS"}
	}
	e.Widths = o.Widths("laddr")
	return e, nil
}

func (o *options) columns() []string {
	cols := o.Times.Columns()
	if o.PrintUID {
		cols = append(cols, "uid")
	}
	return append(cols, "pid", "comm", "ret", "protocol", "options", "ifindex", "lport", "laddr")
}
