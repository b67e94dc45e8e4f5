// Package tcprtt shows the round-trip time of TCP connections as a histogram.
package tcprtt

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcprtt.bpf.c

type options struct {
	Every     flags.Duration `flag:"interval,i" pos:"interval" arg:"SECONDS" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default"`
	Count     uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	Timestamp bool           `flag:"timestamp,T" help:"show the time of each report"`
	MS        bool           `flag:"milliseconds,m" also:"millisecond" help:"show milliseconds instead of microseconds"`
	LPort     flags.Ports    `flag:"lport,p" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	RPort     flags.Ports    `flag:"rport,P" arg:"PORT" bpf:"targ_not_rports" help:"only these remote ports"`
	LAddr     flags.Addr     `flag:"laddr,a" arg:"ADDRESS" bpf:"targ_laddr" help:"only this local address"`
	RAddr     flags.Addr     `flag:"raddr,A" arg:"ADDRESS" bpf:"targ_raddr" help:"only this remote address"`
	NetNS     uint32         `flag:"netns-id" arg:"INODE" min:"1" bpf:"targ_netns" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
	tcp.Family
	ByLAddr   bool `flag:"byladdr,b" bpf:"by_laddr" key:"laddr" help:"one histogram per local address"`
	ByRAddr   bool `flag:"byraddr,B" bpf:"by_raddr" key:"raddr" help:"one histogram per remote address"`
	Extension bool `flag:"extension,e" help:"no effect, for compatibility: the mean is always shown"`
	Debug     bool `flag:"debug,D" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
}

// histKey mirrors struct hist_key.
type histKey struct{ LAddr, RAddr value.Addr }

type label struct {
	LAddr value.Addr `json:"laddr" col:"LADDR,width=15" help:"local address; an IPv4-mapped IPv6 address is shown as IPv4"`
	RAddr value.Addr `json:"raddr" col:"RADDR,width=15" help:"remote address; an IPv4-mapped IPv6 address is shown as IPv4"`
}

// Tool is the definition of tcprtt.
var Tool = tool.Define(tool.Spec{
	Name:     "tcprtt",
	Category: "network",
	Summary:  "TCP round-trip time (RTT, network latency) as a histogram",
	Description: `Shows the smoothed round-trip time (SRTT) of TCP connections, in all network namespaces. There is one value for each packet that a connection in state ESTABLISHED receives: the kernel's estimate at this moment, before it uses the acknowledgement in the packet. So busy connections have more weight than idle ones.

The kernel measures the time from sending a segment to its acknowledgement, and smooths it: a new measurement has the weight 1/8. The value includes the time in the queues of both hosts, and delayed acknowledgements of the other end. It is the value that ss -i shows as rtt. Before the first measurement there is none: such packets are counted in the summary (unmeasured).

The hook is the tracepoint tcp:tcp_probe. A connection between two processes of this machine has values of both ends.`,
	Peers: []string{
		"Histograms include all address families; -4 and -6 (BCC) select by the protocol on the wire.",
		"-a, -A and the port options accept IPv4 and IPv6; ports are lists.",
		"-b and -B can be combined.",
		"-e has no effect: count, mean and percentiles are always shown.",
		"Packets of connections without a round-trip time are counted separately; libbpf-tools and BCC count them as 0.",
		"-i is also the first argument, as in other tools; -D (BCC: debug output) is --debug, the same as -v.",
	},
	Examples: []string{
		"tcprtt -i 1 --duration 10s    # a report each second, for 10 seconds",
		"tcprtt -m -B -P 443           # by remote address, of connections to port 443, in ms",
		"tcprtt -a 192.0.2.10 -p 5432  # clients of a server on one local address",
		"tcprtt -B --filter 'p99 > 100000' 5  # remote hosts with a p99 above 100 ms",
	},
	Object: loadBpf,
	Shorts: map[string]string{"duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	ends := o.ByLAddr || o.ByRAddr || o.LAddr.IsValid() || o.RAddr.IsValid() || o.IPv4 || o.IPv6
	return &source.Hists[histKey, label]{
		Plan: tool.Plan{Variables: map[string]any{
			"want_ends": ends || o.NetNS > 0 || len(o.LPort)+len(o.RPort) > 0,
		}},
		Interval: source.Interval{Rounds: source.Rounds{Every: o.Every, Count: o.Count}, Timestamp: o.Timestamp},
		Unit:     source.Milliseconds{Milliseconds: o.MS}.Unit(),
		Label:    func(k histKey) label { return label(k) },
		Keys:     source.Keys(o),
	}, nil
}
