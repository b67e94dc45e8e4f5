// Package cachestat counts hits and misses of the page cache.
package cachestat

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cachestat.bpf.c

type options struct{ tool.Interval }

// counts is struct totals.
type counts struct{ Accessed, Added, Dirtied, Dirties uint64 }

type row struct {
	Hits      uint64        `json:"hits" col:"HITS,width=8,right,hook=accessed+added+dirtied+dirties" help:"folios that were read or written and were in the cache: accessed - dirties - misses, or 0"`
	Misses    uint64        `json:"misses" col:"MISSES,width=8,right,hook=added+dirtied" help:"folios that were put in the cache and not to be written: added - dirtied, or 0"`
	Dirties   uint64        `json:"dirties" col:"DIRTIES,width=8,right,hook=dirties" help:"buffers that became dirty (mark_buffer_dirty)"`
	Ratio     value.Percent `json:"hit_ratio_percent" col:"HITRATIO,width=8,right,hook=accessed+added+dirtied+dirties" help:"hits in a hundred hits and misses; absent where there are neither"`
	BuffersMB uint64        `json:"buffers_mb" col:"BUFFERS_MB,width=12,right" help:"Buffers of /proc/meminfo at the end of the interval, in units of 1,048,576 bytes"`
	CachedMB  uint64        `json:"cached_mb" col:"CACHED_MB,width=10,right" help:"Cached of /proc/meminfo, likewise"`
	Accessed  uint64        `json:"accessed" col:"ACCESSED,width=8,right,hook=accessed" help:"folios that were read or written (folio_mark_accessed; before 5.16 pages, mark_page_accessed)"`
	Added     uint64        `json:"added" col:"ADDED,width=8,right,hook=added" help:"folios that were put in the cache, to be read, ahead of it, or to be written (mm_filemap_add_to_page_cache)"`
	Dirtied   uint64        `json:"dirtied" col:"DIRTIED,width=8,right,hook=dirtied" help:"folios that became dirty (writeback_dirty_folio; before 5.18 writeback_dirty_page)"`
}

// Tool is cachestat.
var Tool = tool.Define(tool.Spec{
	Name:     "cachestat",
	Category: "file",
	Summary:  "Count hits and misses of the page cache",
	Description: `Counts what happens in the page cache, each second, and estimates hits and misses by it as BCC and libbpf-tools do: what is put in the cache and does not become dirty was missed, and what is accessed beside that was hit.

It is an estimate: a write to what is in the cache makes it dirty without adding, and takes one from the misses; what is read ahead is added before it is missed. accessed, added, dirtied and dirties are what was counted.

The kernel counts folios, each of one or more pages, from 5.16 on, and pages before. Which of its events there are depends on the kernel: that something was accessed can only be traced by trampolines or probes. What cannot be had is n/a, and null in JSON, as is what would follow from it.

With a task filter only what the task does itself is counted, not what is read ahead or written back for it by others.`,
	Peers: []string{
		"MISSES are right on 5.16 and later, where libbpf-tools shows 0, as it traces functions for pages that are no longer called.",
		"Where the kernel has no way to an event the column is n/a; the peers do not start, or show 0.",
		"There are the task filters, which the peers have not.",
	},
	Examples: []string{
		"cachestat           # a line each second",
		"cachestat -T 5 3    # with the time, three lines of five seconds each",
		"cachestat --columns +added,+dirtied  # and what was counted",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{tool.Interval{Rounds: tool.Rounds{Every: flags.Duration(time.Second)}}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	t := &tool.Table[struct{}, counts, row]{
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

// less is a - b, or 0.
func less(a, b uint64) uint64 { return a - min(a, b) }
