// Package swapin counts pages that are read from swap.
package swapin

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh swapin.bpf.c

type options struct {
	source.Rounds
	NoTime bool `flag:"notime,T" help:"do not show the time"`
}

// key mirrors struct table_key.
type key struct {
	CgroupID uint64
	PID      uint32
	Comm     value.Comm
	_        uint32
}

// counts mirrors struct table_value.
type counts struct{ Count uint64 }

type row struct {
	Comm     value.Name `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader)"`
	PID      uint32     `json:"pid" col:"PID,width=7" help:"process that read from swap, in the initial PID namespace"`
	Count    uint64     `json:"count" col:"COUNT,width=8,right" help:"reads from swap in the interval: folios (before 6.9 pages), each of one or more pages"`
	CgroupID uint64     `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the cgroup of the thread that read: inode number of its directory"`
}

// Tool is the definition of swapin.
var Tool = tool.Define(tool.Spec{
	Name:     "swapin",
	Category: "memory",
	Summary:  "Count swap-ins: memory that processes read back from swap",
	Description: `Counts, per interval (one second by default) and by process, how often the kernel reads memory back from swap. Swap-ins are a sign that memory is short: the process waits for each of them, unless the page was read ahead.

A swap-in is a call of swap_read_folio() (swap_readpage() before kernel 6.9). It belongs to the task that called it: usually the one that accessed the memory, which also reads neighbouring pages ahead, or swapoff. Memory that is still in the swap cache needs no swap-in. Reads that need no disk are counted too: zswap has the memory, or the page was zero when it was swapped out (since kernel 6.12).

The kernel has no tracepoint for this, so the tool needs fentry or kprobes.`,
	Peers: []string{
		"COMM is the name of the process; in BCC it is the name of a thread, so a process can have several rows.",
		"The time is a column, which -T omits; BCC prints it above each table.",
	},
	Examples: []string{
		"swapin             # a table each second",
		"swapin -T 5 3      # three tables of five seconds each, without the time",
		"swapin --columns +container --filter 'count > 100'  # busy processes, with their container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Rounds: source.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	t := &source.Table[key, counts, row]{
		Rounds:  o.Rounds,
		Ranking: source.Ranking{Sort: "count"},
		Columns: []string{"comm", "pid", "count"},
		Label: func(k *key, _ *counts) row {
			return row{Comm: value.NameOf(k.Comm[:]), PID: k.PID, CgroupID: k.CgroupID}
		},
		Fill: func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}
	if !o.NoTime {
		t.Columns = append([]string{"time"}, t.Columns...)
	}
	return t, nil
}
