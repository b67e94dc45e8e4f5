// Package tcptop shows the TCP connections with the most traffic.
package tcptop

import (
	"net/netip"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcptop.bpf.c

type options struct {
	source.Top
	tcp.Family
	NoSummary bool `flag:"nosummary,S" help:"do not show load averages"`
}

// key mirrors struct table_key.
type key struct {
	Ends     value.Ends
	CgroupID uint64
	PID, UID uint32
	Comm     value.Comm
}

// counts mirrors struct table_value.
type counts struct{ TxBytes, RxBytes uint64 }

type row struct {
	PID  uint32     `json:"pid" col:"PID,width=7" help:"process that sent or received, in the initial PID namespace"`
	UID  uint32     `json:"uid" col:"UID,width=6" help:"real user ID of this process, in the initial user namespace"`
	Comm value.Name `json:"comm" col:"COMM,width=12" help:"name of the thread that sent or received"`
	value.Ends
	Local    string     `json:"local" col:"LADDR,width=21,extra" help:"laddr and lport"`
	Remote   string     `json:"remote" col:"RADDR,width=21,extra" help:"raddr and rport"`
	RxBytes  value.Size `json:"rx_bytes" col:"RX_KB,width=9,right" help:"bytes that the process received in the interval; text shows units of 1,024"`
	TxBytes  value.Size `json:"tx_bytes" col:"TX_KB,width=9,right" help:"bytes that the process passed to the kernel for sending in the interval; text shows units of 1,024"`
	Bytes    value.Size `json:"total_bytes" col:"TOTAL_KB,width=9,right,extra" help:"sum of rx_bytes and tx_bytes; text shows units of 1,024"`
	CgroupID uint64     `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the thread's cgroup: inode number of its directory"`
}

// Tool is the definition of tcptop.
var Tool = tool.Define(tool.Spec{
	Name:     "tcptop",
	Category: "network",
	Summary:  "TCP throughput by process and connection (bytes sent and received), as a top-like table",
	Description: `Counts the bytes that processes send and receive over TCP per interval (one second by default), by process and connection, and shows the rows with the most bytes first.

Bytes are counted when the process passes them to the kernel or receives them, in the context of the process. They differ from those on the wire, which include headers, retransmissions and acknowledgements. Data that a process reads with MSG_PEEK is not counted.

An MPTCP connection is one row, with the addresses of its first subflow.

The hooks are the functions tcp_sendmsg, tcp_recvmsg and tcp_cleanup_rbuf, and mptcp_sendmsg and mptcp_recvmsg for MPTCP, or, if these cannot be traced, the tracepoints sock_send_length and sock_recv_length (kernel 6.3 and later). The tracepoints miss data that splice takes from a socket, and data received by mapping (TCP_ZEROCOPY_RECEIVE). Before 6.5 sendfile is traced only with fentry (hook sendpage). With kprobes, tcp_recvmsg is not traced: data read with MSG_PEEK is counted as received, and a call that waits for more data (MSG_WAITALL) can count what it had before several times. The hook option traces setsockopt(2), for which the kernel calls tcp_cleanup_rbuf as if a byte had been received (TCP_QUICKACK); where it cannot be attached, such a call counts as one byte.`,
	Peers: []string{
		"Bytes sent are those that the kernel accepted. libbpf-tools and BCC count the requested size, so a socket with a full buffer seems to send more.",
		"IPv4 and IPv6 are in the same table; libbpf-tools and BCC have separate tables.",
		"-c is --cgroup. JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
		"--cgroupmap and --mntnsmap are those of BCC: they select by the keys of a pinned map. --cgroup and --container need no map.",
	},
	Examples: []string{
		"tcptop                  # a screen of the busiest connections, each second",
		"tcptop -C -S 5 3        # three tables of five seconds each",
		"tcptop -4 -s received   # IPv4 only, by bytes received",
		"tcptop --columns pid,comm,local,remote,rx_bytes,tx_bytes,container  # with the container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{Top: source.TopBy("all")}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	o.NoLoad = o.NoSummary
	return &source.Table[key, counts, row]{
		Plan: tool.Plan{Optional: []string{"sendpage", "mptcp_send", "mptcp_recv", "option"}}, Top: &o.Top,
		Columns:   []string{"pid", "comm", "local", "remote", "rx_bytes", "tx_bytes"},
		SortNames: map[string]string{"all": "total_bytes", "sent": "tx_bytes", "received": "rx_bytes"},
		Label:     label,
		Fill:      fill,
	}, nil
}

func label(k *key, _ *counts) row {
	return row{
		PID: k.PID, UID: k.UID, Comm: value.NameOf(k.Comm[:]), Ends: k.Ends, CgroupID: k.CgroupID,
		Local:  netip.AddrPortFrom(k.Ends.LAddr.IP(), k.Ends.LPort).String(),
		Remote: netip.AddrPortFrom(k.Ends.RAddr.IP(), k.Ends.RPort).String(),
	}
}

func fill(r *row, c *counts, _ time.Duration) {
	r.RxBytes, r.TxBytes = value.Size(c.RxBytes), value.Size(c.TxBytes)
	r.Bytes = r.RxBytes + r.TxBytes
}
