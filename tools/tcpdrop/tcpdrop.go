// Package tcpdrop shows TCP packets that the kernel drops.
package tcpdrop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpdrop.bpf.c

type options struct {
	tool.Family
	NetNS    uint32 `flag:"netns-id" arg:"INODE" help:"only this network namespace: the inode of /proc/PID/ns/net"`
	PIDNetNS uint32 `flag:"pid-netns" arg:"PID" help:"only the network namespace of this process"`
	Wide     bool   `flag:"wide,w" help:"make room for IPv6 addresses"`
}

// packet is struct packet.
type packet struct {
	SAddr value.Addr `json:"saddr" col:"SADDR,width=15" help:"source address of the packet"`
	DAddr value.Addr `json:"daddr" col:"DADDR,width=15" help:"destination address of the packet"`
	SPort uint16     `json:"sport" col:"SPORT,width=5" help:"source port"`
	DPort uint16     `json:"dport" col:"DPORT,width=5" help:"destination port"`
	NetNS uint32     `json:"netns" col:"NETNS,width=10" help:"network namespace in which it was dropped: inode of /proc/PID/ns/net; 0 where neither socket nor device is known"`
	Seq   uint32     `json:"seq" col:"SEQ,width=10,right" help:"sequence number in its header"`
	Ack   uint32     `json:"ack" col:"ACK,width=10,right" help:"acknowledgement number in its header"`
}

type event struct {
	value.Task
	Location uint64
	packet
	Reason   uint32
	StackLen uint32
	TCPState state `json:"tcp_state" col:"STATE,width=12" help:"state of the socket that the packet was for, or came from; absent where there is none, and before kernel 6.11 for most packets that came in, as the kernel does not say"`
	Flags    flags `json:"flags" col:"FLAGS,width=11" help:"flags in its header: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR"`
	_        [6]uint8
}

type row struct {
	event
	Family uint8       `json:"family" col:"IP,width=2" help:"version of the Internet Protocol: 4 or 6"`
	Why    why         `json:"reason" col:"REASON,width=20" help:"why, as the kernel's enum skb_drop_reason has it, without SKB_DROP_REASON_; SUBSYSTEM_N for a reason of another subsystem; absent before kernel 5.17"`
	Stack  value.Stack `json:"stack" col:"STACK,need=want_stack" help:"functions of the kernel that were being run, the one that dropped it first; text shows them below the row"`

	env     *tool.Env
	reasons reasons
	addrs   []uint64
}

// why is a name that need not be there.
type why struct{ value.Bytes }

func (v *why) Absent() bool { return len(v.Bytes) == 0 }

// Decode names the reason and the functions.
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

// nameStack leaves out what is called to drop a packet: those functions do so in all stacks.
func (r *row) nameStack() {
	called := slices.Index(r.addrs, r.Location)
	r.Stack = r.env.KernelStack(r.Stack, r.addrs[max(0, called-1):])
	if called > 0 && len(r.Stack) > 0 {
		r.Stack = slices.Delete(r.Stack, 0, 1)
	}
}

// Tool is tcpdrop.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpdrop",
	Category: "network",
	Summary:  "Show TCP packets that the kernel drops, and why",
	Description: `Shows each TCP packet that the kernel drops, in all network namespaces, with the reason, the flags of its header, the state of its socket and the functions of the kernel that led there. Not only the network loses packets: a full queue, a bad checksum, a firewall's rule or a port where nobody listens do so too. Some drops are as they should be, such as an acknowledgement that came twice.

They are seen at skb:kfree_skb, by two copies of a program, as the kernel leaves one out that is running on the CPU already. The reason is the kernel's own from 5.17 on, by the names of the running kernel. Before, it is absent, and drops in the middle of a connection are seen at tcp_drop, where that can be traced (--explain). Packets without a TCP header that can be read are not shown: fragments but the first, and IPv6 with other headers before TCP. Copies for raw and packet sockets, as of tcpdump, are left out.

Packets come in in whichever task is there. The pid, uid, comm and cgroup are not that one's, but those of the owner of the socket: the task that called connect, accept or listen. Connections are followed for that from the start of the tool, and those that were there before belong to the first task that holds them. Where there is no socket or no owner, or the socket is closed, the pid is 0, the uid 4294967295 and the comm empty. Before kernel 6.11 that is so for most packets that came in, as the kernel does not say which socket they were for.

The names of the functions need CAP_SYSLOG; without it there are addresses only.`,
	Peers: []string{
		"SADDR:SPORT > DADDR:DPORT (BCC) are columns of their own, and REASON is without its number.",
		"PID is the owner's; BCC shows the task that happens to run.",
		"The stack begins with the function that drops the packet; BCC's with the program's own frames, or with kfree_skb_reason.",
		"libbpf-tools has no tcpdrop.",
	},
	Overhead: `Of 2,000 packets, with the CPUs of the machine busy otherwise, a drop took 6.0 us in both copies of the program, most of it for a stack of 23 functions: --columns without stack leaves that out. To know the owners, each change of a socket's state took some 400 ns in both copies. The program at the end of system calls took 65 to 78 ns each time, of which some 20 are the measuring (--stats).`,
	Examples: []string{
		"tcpdrop                                     # packets as they are dropped",
		"tcpdrop --filter 'reason != \"NO_SOCKET\"'    # but those to ports where nobody listens",
		"tcpdrop --container web --columns time,saddr,dport,reason  # those of a container's sockets, a line each",
		"tcpdrop --filter '\"nft_do_chain\" in stack'  # those that nftables drops",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// bufferBytes holds some 20,000 drops at once.
const bufferBytes = 8 << 20

func build(o *options, env *tool.Env) (tool.Source, error) {
	netns, err := o.netns()
	if err != nil {
		return nil, err
	}
	e := &tool.Events[row]{
		Plan: tool.Plan{
			Variables:  map[string]any{"targ_netns": netns},
			MapEntries: tool.ConnectionMaps(),
			Optional:   []string{"input"},
			Keep:       []system.Capability{system.CapSyslog},
		},
		Columns:     []string{"time", "pid", "family", "saddr", "sport", "daddr", "dport", "tcp_state", "flags", "reason", "stack"},
		BufferBytes: bufferBytes,
		Before:      []tool.Iterator{{Program: "existing_files"}, {Program: "existing_socks"}},
		Row:         row{env: env},
	}
	if o.Wide {
		e.Widths = map[string]int{"saddr": 39, "daddr": 39}
	}
	return e, e.Row.reasons.read(env)
}

// netns is the only namespace that is wanted, or 0.
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

// read reads the names that this kernel has.
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

// ignore drops the error of an enum that this kernel has not.
func ignore(err error) error {
	if errors.Is(err, btf.ErrNotFound) || errors.Is(err, ebpf.ErrNotSupported) {
		return nil
	}
	return err
}
