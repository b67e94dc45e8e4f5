// Package cachestat counts page cache hits and misses.
package cachestat

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cachestat.bpf.c

type options struct{ source.Interval }

// counts mirrors struct totals.
type counts struct{ Accessed, Added, Dirtied, Dirties uint64 }

type row struct {
	Hits      uint64        `json:"hits" col:"HITS,width=8,right,hook=accessed+added+dirtied+dirties,counter" help:"folios that were accessed and already cached: accessed - dirties - misses, at least 0"`
	Misses    uint64        `json:"misses" col:"MISSES,width=8,right,hook=added+dirtied,counter" help:"folios added to the page cache to be read: added - dirtied, at least 0"`
	Dirties   uint64        `json:"dirties" col:"DIRTIES,width=8,right,hook=dirties" help:"buffers that became dirty (mark_buffer_dirty)"`
	Ratio     value.Percent `json:"hit_ratio_percent" col:"HITRATIO,width=8,right,hook=accessed+added+dirtied+dirties" help:"hits in percent of hits plus misses; absent if both are 0"`
	BuffersMB uint64        `json:"buffers_mb" col:"BUFFERS_MB,width=12,right" help:"Buffers of /proc/meminfo at the end of the interval, in units of 1,048,576 bytes"`
	CachedMB  uint64        `json:"cached_mb" col:"CACHED_MB,width=10,right" help:"Cached of /proc/meminfo at the end of the interval, in units of 1,048,576 bytes"`
	Accessed  uint64        `json:"accessed" col:"ACCESSED,width=8,right,hook=accessed" help:"folios that were read or written (folio_mark_accessed; before 5.16 pages, mark_page_accessed)"`
	Added     uint64        `json:"added" col:"ADDED,width=8,right,hook=added" help:"folios added to the page cache for reads, read-ahead or writes (mm_filemap_add_to_page_cache)"`
	Dirtied   uint64        `json:"dirtied" col:"DIRTIED,width=8,right,hook=dirtied" help:"folios that became dirty (writeback_dirty_folio; before 5.18 writeback_dirty_page)"`
}

// Tool is the definition of cachestat.
var Tool = tool.Define(tool.Spec{
	Name:     "cachestat",
	Category: "file",
	Summary:  "Page cache hit ratio: cache hits and misses per interval",
	Description: `Counts page cache operations per interval (one second by default) and estimates hits and misses from them as BCC and libbpf-tools do: folios that are added and do not become dirty are misses, and other accesses are hits.

This is an estimate. A write to a cached folio makes it dirty without adding it, which reduces the misses by one; read-ahead adds folios before they are needed. The columns accessed, added, dirtied and dirties are the measured values.

From 5.16 on, the kernel counts folios, which consist of one or more pages; before it counts pages. Which operations can be traced depends on the kernel: accesses have no tracepoint and require fentry or kprobes. A column whose hook is unavailable is n/a (null in JSON), as are the columns computed from it.

With a task filter only operations of matching tasks are counted, not read-ahead and writeback that other tasks do for them.`,
	Peers: []string{
		"MISSES is right on 5.16 and later, where libbpf-tools shows 0, because it traces page functions that the kernel no longer calls.",
		"If the kernel has no hook for an operation, its column is n/a; the peers do not start, or show 0.",
		"Task filters are supported; the peers have none.",
	},
	Examples: []string{
		"cachestat           # a line each second",
		"cachestat -T 5 3    # with the time, three lines of five seconds each",
		"cachestat --columns +added,+dirtied  # with measured values",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{source.Interval{Rounds: source.Rounds{Every: flags.Duration(time.Second)}}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	t := &source.Table[struct{}, counts, row]{
		Plan:    tool.Plan{Optional: []string{"accessed", "added", "dirtied", "dirties"}},
		Rounds:  o.Rounds,
		Columns: []string{"hits", "misses", "dirties", "hit_ratio_percent", "buffers_mb", "cached_mb"},
		Fill:    fill,
	}
	if o.Timestamp {
		t.Columns = append([]string{"time"}, t.Columns...)
	}
	return t, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	memory := system.Memory("/")
	*r = row{
		Misses: less(c.Added, c.Dirtied), Dirties: c.Dirties,
		BuffersMB: memory["Buffers"] >> 20, CachedMB: memory["Cached"] >> 20,
		Accessed: c.Accessed, Added: c.Added, Dirtied: c.Dirtied,
	}
	r.Hits = less(less(c.Accessed, c.Dirties), r.Misses)
	r.Ratio = value.Percent(math.NaN())
	if r.Hits+r.Misses > 0 {
		r.Ratio = value.Percent(100 * float64(r.Hits) / float64(r.Hits+r.Misses))
	}
}

// less returns a - b, or 0 if b is greater.
func less(a, b uint64) uint64 { return a - min(a, b) }
