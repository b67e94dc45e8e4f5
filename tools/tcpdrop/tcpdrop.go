// Package tcpdrop traces TCP packets dropped by the kernel.
package tcpdrop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpdrop.bpf.c

type options struct {
	tcp.Family
	NetNS    uint32 `flag:"netns-id" arg:"INODE" min:"1" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
	PIDNetNS uint32 `flag:"pid-netns" arg:"PID" min:"1" id:"process" help:"only the network namespace of this process"`
	All      bool   `flag:"all,a" bpf:"targ_all" help:"include packets that the kernel frees as dropped although no data is lost: the FIN in the queue of a closed socket, and packets whose data was read"`
	NoStack  bool   `flag:"no-stack,S" help:"one line per packet, without stack trace"`
	tcp.Wide
}

// packet mirrors struct packet.
type packet struct {
	SAddr value.Addr `json:"saddr" col:"SADDR,width=15" help:"source address of the packet"`
	DAddr value.Addr `json:"daddr" col:"DADDR,width=15" help:"destination address of the packet"`
	SPort uint16     `json:"sport" col:"SPORT,width=5" help:"source port"`
	DPort uint16     `json:"dport" col:"DPORT,width=5" help:"destination port"`
	NetNS uint32     `json:"netns" col:"NETNS,width=10" help:"network namespace in which it was dropped: inode number of /proc/PID/ns/net; 0 if neither socket nor device is known"`
	Seq   uint32     `json:"seq" col:"SEQ,width=10,right" help:"sequence number of the TCP header"`
	Ack   uint32     `json:"ack" col:"ACK,width=10,right" help:"acknowledgement number of the TCP header"`
}

type event struct {
	value.Task
	Location uint64
	packet
	Reason   uint32
	StackLen uint32
	TCPState state `json:"tcp_state" col:"STATE,width=12" help:"state of the socket that the packet was received for or sent by; absent without a socket, and before kernel 6.11 for most received packets, because the kernel does not provide the socket"`
	Flags    flags `json:"flags" col:"FLAGS,width=11" help:"flags of the TCP header: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR"`
	_        [6]uint8
}

type row struct {
	event
	tcp.Version
	Why   dropReason  `json:"reason" col:"REASON,width=20" help:"name of the reason in the kernel's enum skb_drop_reason, without SKB_DROP_REASON_; SUBSYSTEM_N for a reason of another subsystem; absent before kernel 5.17"`
	Stack value.Stack `json:"stack" col:"STACK,need=want_stack,extra" help:"kernel stack trace, starting with the function that dropped the packet; text shows it below the row"`

	env     *tool.Env
	reasons reasons
	addrs   []uint64
}

// dropReason is the name of a reason, empty if the kernel does not provide one.
type dropReason struct{ value.Bytes }

func (v *dropReason) Absent() bool { return len(v.Bytes) == 0 }

// Decode looks up the name of the reason and symbolizes the stack.
func (r *row) Decode(tail []byte) error {
	r.Family = r.SAddr.Family()
	r.Why.Bytes = append(r.Why.Bytes[:0], r.reasons.name(r.Reason)...)
	r.addrs = r.addrs[:0]
	for range min(int(r.StackLen), len(tail)) / 8 {
		r.addrs = append(r.addrs, binary.NativeEndian.Uint64(tail))
		tail = tail[8:]
	}
	r.nameStack()
	return nil
}

// nameStack symbolizes the stack without the innermost functions that free the packet, which are the
// same in all stacks.
func (r *row) nameStack() {
	called := slices.Index(r.addrs, r.Location)
	r.Stack = r.env.KernelStack(r.Stack, r.addrs[max(0, called-1):])
	if called > 0 && len(r.Stack) > 0 {
		r.Stack = slices.Delete(r.Stack, 0, 1)
	}
}

// Tool is the definition of tcpdrop.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpdrop",
	Category: "network",
	Summary:  "Trace TCP packets dropped by the kernel, with reason and stack trace",
	Description: `Shows each TCP packet that the kernel drops, in all network namespaces, with the reason, the flags of its header, the state of its socket and the kernel stack trace. Packets are lost not only in the network, but also because of a full queue, a wrong checksum, a firewall rule or a port without a listener. Some drops are normal, such as those of duplicate acknowledgements.

When a socket is destroyed, the kernel also frees the packets that are left in its receive queue as dropped. If they contain no unread data, nothing is lost: usually it is the FIN of a connection that both ends have closed, so every healthy connection would have a row. Such packets are omitted unless --all is given; the summary has their number (no_loss).

Text shows the kernel stack trace below each row, as BCC does. It shows what the reason does not, such as the rule or the queue; on kernels before 5.17, which have no reasons, it is the only explanation. --no-stack omits it, and with it most of the cost of a drop.

Drops are traced at skb:kfree_skb, by two copies of a program, because the kernel skips a program that is already running on the same CPU. From kernel 5.17 on, the reason is that of the kernel, with the names of the running kernel. On earlier kernels it is absent, and drops by established connections are traced at tcp_drop, if that function can be traced (--explain). Packets without a readable TCP header are not shown: fragments except the first, and IPv6 packets with other headers before TCP. Copies for raw and packet sockets, such as those of tcpdump, are omitted.

Packets are received in the context of an arbitrary task. pid, uid, comm and cgroup are not those of the current task, but of the owner of the socket: the task that called connect, accept or listen. Owners are recorded from the start of the tool; a connection opened before belongs to the first task with a file descriptor of it. Without a socket or owner, or if the socket is closed, pid is 0, uid is 4294967295 and comm is empty. Before kernel 6.11 this is the case for most received packets, because the kernel does not provide their socket.

Function names need CAP_SYSLOG; otherwise only addresses are shown.`,
	Peers: []string{
		"SADDR:SPORT > DADDR:DPORT (BCC) are separate columns, and REASON has no number.",
		"PID is that of the owner; BCC shows the current task.",
		"The stack trace starts with the function that drops the packet; in BCC it starts with frames of the BPF program, or with kfree_skb_reason.",
		"Packets that are freed as dropped without a loss are omitted; --all shows them, as BCC does.",
		"libbpf-tools has no tcpdrop.",
	},
	Overhead: `A drop took 6.0 us in both copies of the program (2,000 packets, otherwise busy CPUs), most of it for a stack trace of 23 functions, which --no-stack, or --columns without stack, omits. To record the owners, each change of a socket's state took 400 ns in both copies. The program at the end of system calls took 65 to 78 ns per call, of which about 20 are the measurement (--stats).`,
	Examples: []string{
		"tcpdrop                                     # all dropped packets, with stack traces",
		"tcpdrop -S                                  # one line per packet",
		"tcpdrop --filter 'reason != \"NO_SOCKET\"'    # except packets to ports without a listener",
		"tcpdrop --container web --columns time,saddr,dport,reason  # packets of a container's sockets, one line each",
		"tcpdrop --filter '\"nft_do_chain\" in stack'  # packets dropped by nftables",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes is enough for about 20,000 drops at once.
const bufferBytes = 8 << 20

func build(o *options, env *tool.Env) (tool.Source, error) {
	netns, err := o.netns()
	if err != nil {
		return nil, err
	}
	e := &source.Events[row]{
		Plan: tool.Plan{
			Variables:  map[string]any{"targ_netns": netns},
			MapEntries: tcp.ConnectionMaps(),
			Optional:   []string{"input"},
			Keep:       []system.Capability{system.CapSyslog},
		},
		Columns:     []string{"time", "pid", "family", "saddr", "sport", "daddr", "dport", "tcp_state", "flags", "reason"},
		BufferBytes: bufferBytes,
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
		Row:         row{env: env},
	}
	if !o.NoStack {
		e.Columns = append(e.Columns, "stack")
		e.Extra = []string{"stack"}
	}
	e.Widths = o.Widths("saddr", "daddr")
	return e, e.Row.reasons.read(env)
}

// netns returns the selected network namespace, or 0 for all.
func (o *options) netns() (uint32, error) {
	if o.PIDNetNS == 0 {
		return o.NetNS, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", o.PIDNetNS), &st); err != nil {
		return 0, fmt.Errorf("--pid-netns: find namespace of process %d: %w", o.PIDNetNS, err)
	}
	return uint32(st.Ino), nil
}

// read reads the names of reasons from the BTF of the running kernel.
func (r *reasons) read(env *tool.Env) error {
	var err error
	if r.core, err = env.KernelEnum("skb_drop_reason"); ignore(err) != nil {
		return err
	}
	if r.subsystems, err = env.KernelEnum("skb_drop_reason_subsys"); ignore(err) != nil {
		return err
	}
	return nil
}

// ignore returns nil for errors that mean that the kernel has no such enum.
func ignore(err error) error {
	if errors.Is(err, btf.ErrNotFound) || errors.Is(err, ebpf.ErrNotSupported) {
		return nil
	}
	return err
}
