// Package tcptop shows the connections that send and receive most.
package tcptop

import (
	"net/netip"
	"time"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcptop.bpf.c

type options struct {
	tool.Top
	tool.Family
	NoSummary bool `flag:"nosummary,S" help:"leave out the load averages"`
}

// key is struct table_key.
type key struct {
	Ends     value.Ends
	CgroupID uint64
	PID, UID uint32
	Comm     value.Comm
}

// counts is struct table_value.
type counts struct{ TxBytes, RxBytes uint64 }

type row struct {
	PID  uint32     `json:"pid" col:"PID,width=7" help:"process that sent or received, in the initial PID namespace"`
	UID  uint32     `json:"uid" col:"UID,width=6" help:"its real user id, in the initial user namespace"`
	Comm value.Name `json:"comm" col:"COMM,width=12" help:"name of the thread that sent or received"`
	value.Ends
	Local    string     `json:"local" col:"LADDR,width=21,extra" help:"laddr and lport in one"`
	Remote   string     `json:"remote" col:"RADDR,width=21,extra" help:"raddr and rport in one"`
	RxBytes  value.Size `json:"rx_bytes" col:"RX_KB,width=9,right" help:"bytes that the process received in the interval; text shows units of 1,024"`
	TxBytes  value.Size `json:"tx_bytes" col:"TX_KB,width=9,right" help:"bytes that it handed over to be sent; text shows units of 1,024"`
	Bytes    value.Size `json:"total_bytes" col:"TOTAL_KB,width=9,right,extra" help:"both"`
	CgroupID uint64     `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"id of the thread's cgroup: inode of its directory"`
}

// Tool is tcptop.
var Tool = tool.Define(tool.Spec{
	Name:     "tcptop",
	Category: "network",
	Summary:  "Show the TCP connections that send and receive most",
	Description: `Counts the bytes that processes send and receive by TCP, by process and connection, each second, those with the most first.

They are counted as the process hands them over or takes them, in its own context: not as they are on the wire, where there are headers, retransmissions and acknowledgements. What a process looks at and leaves (MSG_PEEK) is not received.

The hooks are the functions tcp_sendmsg and tcp_cleanup_rbuf, or, where these cannot be had, the tracepoints sock_send_length and sock_recv_length (kernel 6.3 and later). By the tracepoints what splice takes from a socket, and what is received by mapping (TCP_ZEROCOPY_RECEIVE), is not seen. sendfile is not seen before 6.5 but with fentry (hook sendpage). With kprobe what is looked at and left counts as received.`,
	Peers: []string{
		"Bytes sent are those that the kernel took. libbpf-tools and BCC count what was asked for, so that a socket without room seems to send more.",
		"IPv6 is in the same table; libbpf-tools and BCC have one of its own for it.",
		"-c is --cgroup. JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
		"--cgroupmap and --mntnsmap (BCC) are not there: --cgroup and --container filter by themselves.",
	},
	Examples: []string{
		"tcptop                  # a screen of the busiest connections, each second",
		"tcptop -C -S 5 3        # three tables of five seconds each",
		"tcptop -4 -s received   # IPv4 only, by what is received",
		"tcptop --columns pid,comm,local,remote,rx_bytes,tx_bytes,container  # whose they are",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{Top: tool.TopBy("all")}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	o.NoLoad = o.NoSummary
	return &tool.Table[key, counts, row]{
		Plan: tool.Plan{Optional: []string{"sendpage"}}, Top: &o.Top,
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
