// Package compactsnoop traces memory compaction.
package compactsnoop

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh compactsnoop.bpf.c

type options struct {
	Timestamp bool `flag:"timestamp,T" help:"show seconds since the start"`
	Stack     bool `flag:"kernel-stack,K" help:"show the kernel stack trace at the end of the compaction"`
	Extended  bool `flag:"extended_fields,e" also:"extended" help:"show the fragmentation index, watermarks and free pages of the zone"`
}

// zone mirrors struct zone_state.
type zone struct {
	Node          int32      `json:"node" col:"NODE,width=4,right" help:"NUMA node of the zone; -1 if the zone is unknown, because its compaction began before the run"`
	Order         int32      `json:"order" col:"ORDER,width=5,right" help:"free blocks of 2^order pages are needed; -1 to compact the whole zone"`
	Fragmentation fragIndex  `json:"fragmentation_index" col:"FRAGIDX,width=7,right" help:"fragmentation index of the zone for this order at the start, as in /sys/kernel/debug/extfrag/extfrag_index: towards 1 allocations fail because memory is fragmented, towards 0 because it is short; -1 if they would succeed; absent with order -1"`
	Name          value.Comm `json:"zone" col:"ZONE,width=8" help:"name of the zone, as in /proc/zoneinfo"`
	_             uint32
	Min           uint64 `json:"min_pages" col:"MIN,width=8,right" help:"min watermark of the zone in pages"`
	Low           uint64 `json:"low_pages" col:"LOW,width=8,right" help:"low watermark"`
	High          uint64 `json:"high_pages" col:"HIGH,width=8,right" help:"high watermark"`
	Free          uint64 `json:"free_pages" col:"FREE,width=8,right" help:"free pages of the zone at the start"`
}

type event struct {
	value.Task
	Duration value.Nanoseconds `json:"duration_ns" col:"LAT(ms),width=8,right" help:"time from the start to the end of the compaction of the zone (CLOCK_MONOTONIC); text shows milliseconds" btf:"duration_ns"`
	zone
	Result   uint32
	Sync     uint32
	StackLen uint32
	_        uint32
}

// fragIndex is the fragmentation index in thousandths. It is absent below -1.
type fragIndex int32

func (v *fragIndex) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(*v)/1000, 'f', 3, 64)
}
func (v *fragIndex) AppendJSON(b []byte) []byte { return v.AppendText(b) }
func (v *fragIndex) Any() any                   { return float64(*v) / 1000 }
func (v *fragIndex) Schema() value.Schema       { return value.Schema{Type: "number"} }
func (v *fragIndex) Absent() bool               { return *v < -1000 }

type row struct {
	event
	source.Elapsed
	Mode   value.Name  `json:"mode" col:"MODE,width=5" help:"SYNC if the compaction may wait for pages, otherwise ASYNC"`
	Status value.Name  `json:"status" col:"STATUS,width=16" help:"result: name in the kernel's enum compact_result, in lower case without COMPACT_, such as success, complete (the whole zone was scanned), partial_skipped, contended"`
	Stack  value.Stack `json:"stack" col:"STACK,need=want_stack,extra" help:"with -K: kernel stack trace at the end of the compaction; text shows it below the row"`

	env     *tool.Env
	results map[uint64]string
	addrs   []uint64
}

// Decode looks up names and symbolizes the stack.
func (r *row) Decode(tail []byte) error {
	r.Mode = "ASYNC"
	if r.Sync != 0 {
		r.Mode = "SYNC"
	}
	name := r.results[uint64(r.Result)]
	if name == "" {
		name = strconv.Itoa(int(r.Result))
	}
	r.Status = value.Name(strings.ToLower(strings.TrimPrefix(name, "COMPACT_")))
	r.addrs = r.addrs[:0]
	for range min(int(r.StackLen), len(tail)) / 8 {
		r.addrs = append(r.addrs, binary.NativeEndian.Uint64(tail))
		tail = tail[8:]
	}
	r.Stack = r.env.KernelStack(r.Stack, r.addrs)
	return nil
}

// Tool is the definition of compactsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "compactsnoop",
	Category: "memory",
	Summary:  "Trace memory compaction: who compacts which zone, for how long and with which result",
	Description: `Shows each compaction of a zone when it ends. The kernel compacts memory, by moving pages, when an allocation of several contiguous pages, such as of a huge page, fails because of fragmentation. The task that allocates waits meanwhile (direct compaction). The kernel thread kcompactd compacts in the background, and writing to /proc/sys/vm/compact_memory compacts all zones.

Compactions are traced at compaction:mm_compaction_begin and _end, in the context of the task that compacts, so task filters apply to this task. Before kernel 5.18 these tracepoints do not pass the zone and the order: then they are those of compaction:mm_compaction_suitable, which the same thread hits before.

A compaction that has not ended at the end of the run has no row. The summary has the number of these (in_progress), and of those that had begun before the run (unseen_begins).`,
	Peers: []string{
		"ZONE is the name in /proc/zoneinfo, such as Normal; BCC shows ZONE_NORMAL.",
		"FRAGIDX is computed from the free blocks of the zone at the start; BCC reads it from fragmentation_index(), which needs kprobes, and which the kernel calls only for high orders.",
		"Watermarks include the boost, as the kernel applies it.",
	},
	Examples: []string{
		"compactsnoop                 # each compaction, until Ctrl-C",
		"compactsnoop -e -p 1234      # one process, with the state of the zone",
		"compactsnoop -K --comm khugepaged  # with kernel stacks",
		"compactsnoop --filter 'duration_ns > 1000000'  # those of more than 1 ms",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	results, err := env.KernelEnum("compact_result")
	if err != nil {
		results = nil // numbers are shown
	}
	e := &source.Events[row]{
		Plan: tool.Plan{
			Optional: []string{"suitable"},
			RowNoun:  "compaction",
			Settle:   []tool.Iterator{{Program: "settle", Map: "compactions"}},
		},
		Columns:     o.columns(),
		BufferBytes: 8 << 20,
		Row:         row{env: env, results: results},
	}
	if o.Stack {
		e.Extra = []string{"stack"}
		e.Columns = append(e.Columns, "stack")
		e.Plan.Keep = []system.Capability{system.CapSyslog}
	}
	return e, nil
}

func (o *options) columns() []string {
	cols := []string{"comm", "pid", "node", "zone", "order", "mode"}
	if o.Timestamp {
		cols = append([]string{"elapsed_ns"}, cols...)
	}
	if o.Extended {
		cols = append(cols, "fragmentation_index", "min_pages", "low_pages", "high_pages", "free_pages")
	}
	return append(cols, "duration_ns", "status")
}
