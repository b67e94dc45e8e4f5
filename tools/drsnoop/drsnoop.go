// Package drsnoop traces direct reclaim of memory.
package drsnoop

import (
	"os"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh drsnoop.bpf.c -type reclaim_kind

type options struct {
	Timestamp bool   `flag:"timestamp,T" help:"show seconds since the start instead of the time"`
	PrintUID  bool   `flag:"print-uid,U" help:"show the user ID"`
	Extended  bool   `flag:"extended,e" help:"show the free memory of the machine at the start of the reclaim"`
	Name      string `flag:"name,n" arg:"TEXT" help:"only tasks whose name contains this text"`
}

type event struct {
	value.Task
	Duration  value.Nanoseconds `json:"duration_ns" col:"LAT(ms),width=8,right" help:"time from the start to the end of the reclaim (CLOCK_MONOTONIC), during which the task waited; text shows milliseconds" btf:"duration_ns"`
	Reclaimed uint64            `json:"reclaimed_pages" col:"PAGES,width=8,right" help:"pages that the reclaim freed, as returned by the kernel"`
	Free      uint64
	Exponent  int32  `btf:"order"`
	Number    uint32 `btf:"kind"`
}

type row struct {
	event
	source.Elapsed
	Kind      value.Name    `json:"kind" col:"KIND,width=6" help:"system if the machine was short of memory, cgroup if a cgroup reached its limit (memory.max, memory.high, memory.reclaim)"`
	Order     value.Integer `json:"order" col:"ORDER,width=5,right" help:"the allocation was for 2^order contiguous pages; absent for the reclaim of a cgroup"`
	FreeBytes value.Offset  `json:"free_bytes" col:"FREE(KB),width=12,right,need=want_free" help:"free memory of the machine at the start of the reclaim, as the kernel counts it in nr_free_pages of /proc/vmstat; absent in kernels without CONFIG_MEMCG"`

	page uint64
}

// Decode names the kind, and converts pages to bytes.
func (r *row) Decode([]byte) error {
	r.Kind = map[bpfReclaimKind]value.Name{bpfReclaimKindRECLAIM_SYSTEM: "system", bpfReclaimKindRECLAIM_CGROUP: "cgroup"}[bpfReclaimKind(r.Number)]
	r.Order = value.Integer{N: int64(r.Exponent), Given: bpfReclaimKind(r.Number) == bpfReclaimKindRECLAIM_SYSTEM}
	r.FreeBytes.Count = value.Count{N: r.Free * r.page, Given: r.Free > 0}
	return nil
}

// Tool is the definition of drsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "drsnoop",
	Category: "memory",
	Summary:  "Trace direct reclaim: tasks that wait because they must free memory (page reclaim) first",
	Description: `Shows each direct reclaim when it ends. If memory is short, a task that allocates memory must first free some: it scans pages, may write some of them to a disk or swap, and waits meanwhile. This is a common reason of latency that no other tool shows. Reclaim in the background, by kswapd, is not direct reclaim.

Reclaim for the whole machine is traced at vmscan:mm_vmscan_direct_reclaim_begin and _end. Reclaim of a cgroup that has reached its limit is traced at vmscan:mm_vmscan_memcg_reclaim_begin and _end. The column kind distinguishes them: --filter 'kind == "system"' selects the former.

Both tracepoints are hit in the task that allocates memory, so task filters apply to the task that waits. Reclaim for memory.high can also be done by a kernel thread (kworker).

A reclaim that has not ended at the end of the run has no row. The summary has the number of these (in_progress), and of those that had begun before the run (unseen_begins).`,
	Peers: []string{
		"Reclaim of cgroups is shown too; libbpf-tools and BCC show only that of the machine, which --filter 'kind == \"system\"' selects.",
		"-T: BCC adds a column of seconds; here it replaces the time.",
		"FREE(KB) is read from the zones; libbpf-tools and BCC need the address of a kernel variable from /proc/kallsyms.",
		"-v of BCC (system memory state) is -e, as in libbpf-tools.",
	},
	Examples: []string{
		"drsnoop                          # each direct reclaim, until Ctrl-C",
		"drsnoop -e -p 1234               # one process, with the free memory",
		"drsnoop --container web          # tasks of a container",
		"drsnoop --filter 'duration_ns > 10000000'  # those of more than 10 ms",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "uid": "u", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan: tool.Plan{
			Variables: map[string]any{"memory_nodes": system.MemoryNodes("/")},
			Optional:  []string{"memcg"},
			RowNoun:   "direct reclaim",
			Settle:    []tool.Iterator{{Program: "settle", Map: "reclaims"}},
		},
		Columns:     o.columns(),
		BufferBytes: 8 << 20,
		Row:         row{page: uint64(os.Getpagesize())},
	}
	if o.Name != "" {
		e.Keep = func(r *row) bool { return strings.Contains(r.Comm.String(), o.Name) }
	}
	return e, nil
}

func (o *options) columns() []string {
	cols := []string{"time"}
	if o.Timestamp {
		cols = []string{"elapsed_ns"}
	}
	if o.PrintUID {
		cols = append(cols, "uid")
	}
	cols = append(cols, "comm", "tid", "duration_ns", "reclaimed_pages")
	if o.Extended {
		cols = append(cols, "free_bytes")
	}
	return append(cols, "kind")
}
