// Package tcpcong shows the time that TCP connections spend in each congestion state.
package tcpcong

import (
	"net/netip"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpcong.bpf.c

type options struct {
	source.Interval
	LPort flags.Ports `flag:"localport,L" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports, or ranges such as 1024-65535"`
	RPort flags.Ports `flag:"remoteport,R" arg:"PORT" bpf:"targ_not_rports" help:"only these remote ports, or ranges"`
	tcp.Family
	NetNS uint32 `flag:"netns-id" arg:"INODE" min:"1" bpf:"targ_netns" help:"only this network namespace: the inode number of /proc/PID/ns/net"`
	Dist  bool   `flag:"dist,d" bpf:"targ_dist" help:"show histograms of the time until a state is left, one per state"`
	US    bool   `flag:"microseconds,u" help:"show microseconds instead of milliseconds"`
}

// key mirrors struct table_key.
type key struct{ Ends value.Ends }

// counts mirrors struct table_value.
type counts struct{ Open, Disorder, CWR, Recovery, Loss, Changes uint64 }

type row struct {
	value.Ends
	Local    string `json:"local" col:"LAddrPort,width=21,extra" help:"laddr and lport"`
	Remote   string `json:"remote" col:"RAddrPort,width=21,extra" help:"raddr and rport"`
	Open     span   `json:"open_ns" col:"Open,width=9,right,counter" help:"time in state Open: no sign of congestion (CLOCK_MONOTONIC), counted from the first change of the connection's state during the run, to the next one or the end of the interval, as the next four; text shows ms, or us with -u"`
	Disorder span   `json:"disorder_ns" col:"Dod,width=9,right,counter" help:"time in state Disorder: duplicate or selective acknowledgements, a loss is not certain"`
	Recovery span   `json:"recovery_ns" col:"Rcov,width=9,right,counter" help:"time in state Recovery: a loss was detected from acknowledgements, and segments are retransmitted"`
	CWR      span   `json:"cwr_ns" col:"Cwr,width=9,right,counter" help:"time in state CWR: the window is reduced because of a congestion notification (ECN) or a full local queue"`
	Loss     span   `json:"loss_ns" col:"Los,width=9,right,counter" help:"time in state Loss: the retransmission timer expired"`
	Changes  uint64 `json:"changes" col:"Chgs,width=5,right" help:"changes of the state in the interval"`
}

// histKey mirrors struct hist_key.
type histKey struct{ State uint32 }

type label struct {
	State string `json:"state" help:"congestion state: open, disorder, cwr, recovery or loss"`
}

// Tool is the definition of tcpcong.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpcong",
	Category: "network",
	Summary:  "TCP congestion: time that connections spend in each congestion control state",
	Description: `Shows, for each TCP connection whose congestion state has changed, how long it was in each state in the interval, in all network namespaces. The states are those of the kernel's congestion control: Open, Disorder, CWR (Congestion Window Reduced), Recovery and Loss. They concern the data that this end sends.

A connection is in the table from its first change of state during the run, until it is closed. In later intervals it has a row even without changes. The time before its first change, in which it was usually Open, is not included.

With --dist there is a histogram per state instead: one value each time that a state is left, or the connection closed in it. Times that have begun before the first change of a connection during the run are not included.

The hook is the tracepoint tcp:tcp_cong_state_set (kernel 5.18 and later), at which the kernel sets a state. Calls that set the current state again are ignored.`,
	Peers: []string{
		"The time in the current state is counted up to the end of the interval; BCC counts a time when the state is left, in the interval in which that happens.",
		"Before kernel 5.18 BCC traces functions, which the compiler can inline; here the tracepoint is required.",
		"-L and -R accept lists of ports and ranges.",
		"-d shows values of all selected connections; text of BCC has the states as words too.",
	},
	Examples: []string{
		"tcpcong 1 10          # a table each second, ten times",
		"tcpcong -R 443 5      # connections to port 443, every 5 seconds",
		"tcpcong -d -u         # histograms of the time in each state, in us",
		"tcpcong --filter 'loss_ns > 1000000000' 10  # connections with more than a second in Loss",
	},
	Object: loadBpf,
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Dist {
		unit := histogram.Milliseconds
		if o.US {
			unit = histogram.Microseconds
		}
		return &source.Hists[histKey, label]{
			Interval: o.Interval, Unit: unit, Keys: []string{"state"},
			Label: func(k histKey) label { return label{states()[min(k.State, 4)]} },
		}, nil
	}
	t := &source.Table[key, counts, row]{
		Rounds:   o.Rounds,
		Ranking:  source.Ranking{Sort: "changes"},
		Columns:  []string{"local", "remote", "open_ns", "disorder_ns", "recovery_ns", "cwr_ns", "loss_ns", "changes"},
		Headers:  o.headers(),
		Label:    newRow,
		Fill:     o.fill,
		Readings: []tool.Iterator{{Program: "current_states", Map: "conns"}},
	}
	if o.Timestamp {
		t.Columns = append([]string{"time"}, t.Columns...)
	}
	return t, nil
}

// states are the names of enum tcp_ca_state.
func states() []string { return []string{"open", "disorder", "cwr", "recovery", "loss"} }

func (o *options) headers() map[string]string {
	unit := "_ms"
	if o.US {
		unit = "_us"
	}
	return map[string]string{
		"open_ns": "Open" + unit, "disorder_ns": "Dod" + unit, "recovery_ns": "Rcov" + unit, "cwr_ns": "Cwr" + unit, "loss_ns": "Los" + unit,
	}
}

func newRow(k *key, _ *counts) row {
	return row{
		Ends:   k.Ends,
		Local:  netip.AddrPortFrom(k.Ends.LAddr.IP(), k.Ends.LPort).String(),
		Remote: netip.AddrPortFrom(k.Ends.RAddr.IP(), k.Ends.RPort).String(),
	}
}

func (o *options) fill(r *row, c *counts, _ time.Duration) {
	r.Open, r.Disorder, r.Recovery = span{c.Open, o.US}, span{c.Disorder, o.US}, span{c.Recovery, o.US}
	r.CWR, r.Loss, r.Changes = span{c.CWR, o.US}, span{c.Loss, o.US}, c.Changes
}
