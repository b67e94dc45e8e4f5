// Package llcstat counts references and misses of the last-level cache.
package llcstat

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh llcstat.bpf.c

type options struct {
	source.Ranking
	Period uint64         `flag:"sample-period,c" arg:"N" min:"1" max:"9223372036854775807" help:"one sample per N references and per N misses"`
	TIDs   bool           `flag:"tids,t" bpf:"by_tid" help:"one row per thread"`
	For    flags.Duration `pos:"duration" sets:"duration" help:"stop after this time, same as --duration"`
}

// Mirrors of struct table_key and struct table_value.
type (
	key struct {
		CgroupID      uint64
		PID, TID, CPU uint32
		Comm          value.Comm
		_             uint32
	}
	counts struct{ References, Misses uint64 }
)

type row struct {
	PID        uint32        `json:"pid" col:"PID,width=7" help:"process that ran, in the initial PID namespace; 0 for idle tasks"`
	TID        uint32        `json:"tid" col:"TID,width=7" help:"thread that ran, in the initial PID namespace; absent without --tids"`
	Comm       value.Comm    `json:"comm" col:"NAME,width=16" help:"name of the thread that ran"`
	CPU        uint32        `json:"cpu" col:"CPU,width=4" help:"CPU that it ran on"`
	References uint64        `json:"references" col:"REFERENCE,width=12,right" help:"references to the last-level cache (PERF_COUNT_HW_CACHE_REFERENCES): number of samples times the sample period"`
	Misses     uint64        `json:"misses" col:"MISS,width=12,right" help:"misses of the last-level cache (PERF_COUNT_HW_CACHE_MISSES): number of samples times the sample period"`
	Hits       value.Percent `json:"hit_ratio_percent" col:"HIT%,width=8,right" help:"references without misses in percent of references; absent without references, or if there are more misses"`
	CgroupID   uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10,extra" help:"ID of the thread's cgroup: inode number of its directory"`
}

// Tool is the definition of llcstat.
var Tool = tool.Define(tool.Spec{
	Name:     "llcstat",
	Category: "scheduler",
	Summary:  "Last-level cache (LLC) references, misses and hit ratio by process, from hardware counters",
	Description: `Counts references to and misses of the last-level cache by process, name and CPU, with the generic events of the CPU's hardware counters (PMU). Most virtual machines have no such counters; then the tool ends with exit code 4.

Each CPU takes a sample per 100 references and per 100 misses, for the task that runs when the counter overflows. A count is the number of samples times that period. So counts are multiples of the period, references and misses are sampled independently of each other, and a row with few samples is inaccurate.

A sample is an interrupt. If there are more than kernel.perf_event_max_sample_rate per second, the kernel stops the counter for a while, and the counts are too low: then use a longer period. Which accesses the two events count depends on the CPU; see perf_event_open(2).

The table is printed when the tool stops.`,
	Peers: []string{
		"-c is --sample-period; --sample_period works too. -t is --tids, because --tid selects a thread.",
		"The tool runs until Ctrl-C without a duration; the peers stop after 10 seconds.",
		"HIT% has two decimals. The line with the totals does not exist: add up the rows.",
		"A row with more misses than references, which small samples can have, has no HIT%; the peers show 0.",
	},
	Examples: []string{
		"llcstat 10                     # ten seconds",
		"llcstat -t --pid 1234 10       # threads of one process",
		"llcstat -c 10000 -r 20 10      # fewer samples, the first 20 rows",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Ranking: source.Ranking{Sort: "references"}, Period: 100}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	t := &source.Table[key, counts, row]{
		Plan: tool.Plan{Sampling: tool.Sampling{Period: o.Period, Hardware: map[string]uint64{
			"references": unix.PERF_COUNT_HW_CACHE_REFERENCES, "misses": unix.PERF_COUNT_HW_CACHE_MISSES,
		}}},
		Ranking: o.Ranking,
		Columns: []string{"pid", "comm", "cpu", "references", "misses", "hit_ratio_percent"},
		Label: func(k *key, _ *counts) row {
			return row{PID: k.PID, TID: k.TID, Comm: k.Comm, CPU: k.CPU, CgroupID: k.CgroupID}
		},
		Fill: fill,
	}
	if o.TIDs {
		t.Columns = append([]string{"pid", "tid"}, t.Columns[1:]...)
	} else {
		t.Off = []string{"tid"}
	}
	return t, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	r.References, r.Misses, r.Hits = c.References, c.Misses, value.Percent(math.NaN())
	if c.References > 0 && c.Misses <= c.References {
		r.Hits = value.Percent(100 * float64(c.References-c.Misses) / float64(c.References))
	}
}
