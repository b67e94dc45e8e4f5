// Package cachetop counts page cache hits and misses by process.
package cachetop

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh cachetop.bpf.c

type options struct{ source.Top }

// key mirrors struct table_key.
type key struct {
	CgroupID uint64
	PID, UID uint32
	Comm     value.Comm
}

// counts mirrors struct table_value.
type counts struct{ Accessed, Added, Dirtied, Dirties uint64 }

type row struct {
	PID       uint32        `json:"pid" col:"PID,width=8" help:"process in whose context the operations ran, in the initial PID namespace"`
	UID       uint32        `json:"uid" col:"UID,width=8" help:"real user ID, in the initial user namespace"`
	Comm      value.Name    `json:"comm" col:"CMD,width=16" help:"name of the thread"`
	Hits      uint64        `json:"hits" col:"HITS,width=8,right,hook=accessed+added+dirtied+dirties,counter" help:"folios that were accessed and already cached, as in cachestat(8): accessed - dirties - misses, at least 0"`
	Misses    uint64        `json:"misses" col:"MISSES,width=8,right,hook=added+dirtied,counter" help:"folios added to the page cache to be read, as in cachestat(8): added - dirtied, at least 0"`
	Dirties   uint64        `json:"dirties" col:"DIRTIES,width=8,right,hook=dirties" help:"buffers that became dirty (mark_buffer_dirty)"`
	ReadHits  value.Percent `json:"read_hit_percent" col:"READ_HIT%,width=9,right,hook=accessed+added+dirtied+dirties" help:"hits in percent of hits plus misses; absent if both are 0"`
	WriteHits value.Percent `json:"write_hit_percent" col:"WRITE_HIT%,width=10,right,hook=added+dirtied" help:"folios that became dirty and were not added for it, in percent of those that became dirty: dirtied - added, at least 0; too low if the process also reads files that are not cached; absent if none became dirty"`
	Accessed  uint64        `json:"accessed" col:"ACCESSED,width=8,right,hook=accessed" help:"folios that were read or written (folio_mark_accessed; before 5.16 pages, mark_page_accessed)"`
	Added     uint64        `json:"added" col:"ADDED,width=8,right,hook=added" help:"folios added to the page cache for reads, read-ahead or writes (mm_filemap_add_to_page_cache)"`
	Dirtied   uint64        `json:"dirtied" col:"DIRTIED,width=8,right,hook=dirtied" help:"folios that became dirty (writeback_dirty_folio; before 5.18 writeback_dirty_page)"`
	CgroupID  uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the task's cgroup: inode number of its directory"`
}

// Tool is the definition of cachetop.
var Tool = tool.Define(tool.Spec{
	Name:     "cachetop",
	Category: "file",
	Summary:  "Page cache hits and misses by process, as a top-like table",
	Description: `Counts page cache operations per interval (five seconds by default) by process and user, and estimates hits and misses from them as cachestat(8) does for all processes together.

This is an estimate. A write to a cached folio makes it dirty without adding it, which reduces the misses by one; read-ahead adds folios before they are needed. The columns accessed, added, dirtied and dirties are the measured values.

Operations count for the task in whose context they run: writeback and read-ahead that kernel threads do for a process count for those threads. A process has a row per name of its threads.

From 5.16 on, the kernel counts folios, which consist of one or more pages; before it counts pages. Accesses have no tracepoint and require fentry or kprobes. A column whose hook is unavailable is n/a (null in JSON), as are the columns computed from it; rows are then sorted by the columns that exist.`,
	Peers: []string{
		"HITS and MISSES are estimated as in cachestat. BCC's cachetop adds accesses and dirty buffers to HITS, and folios that became dirty to MISSES, so each write counts as a miss.",
		"READ_HIT% and WRITE_HIT% are percentages of the reads and of the writes; in BCC both are parts of the sum of all operations.",
		"If the kernel has no hook for an operation, its column is n/a; BCC does not start, or shows 0.",
		"Counts are those of an interval, as in BCC. JSON and CSV have all rows.",
	},
	Examples: []string{
		"cachetop                 # the processes with the most hits, every five seconds",
		"cachetop -s misses 1     # by misses, every second",
		"cachetop -p 1234 -C --columns +added,+dirtied  # one process, with measured values",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{source.Top{Rounds: source.Rounds{Every: flags.Duration(5 * time.Second)}, Ranking: source.Ranking{Sort: "hits"}}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[key, counts, row]{
		Plan: tool.Plan{Optional: []string{"accessed", "added", "dirtied", "dirties"}},
		Top:  &o.Top,
		Columns: []string{
			"pid", "uid", "comm", "hits", "misses", "dirties", "read_hit_percent", "write_hit_percent",
		},
		Label: label, Fill: fill,
	}, nil
}

func label(k *key, _ *counts) row {
	return row{PID: k.PID, UID: k.UID, Comm: value.NameOf(k.Comm[:]), CgroupID: k.CgroupID}
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Misses, r.Dirties = less(c.Added, c.Dirtied), c.Dirties
	r.Hits = less(less(c.Accessed, c.Dirties), r.Misses)
	r.ReadHits, r.WriteHits = percent(r.Hits, r.Hits+r.Misses), percent(less(c.Dirtied, c.Added), c.Dirtied)
	r.Accessed, r.Added, r.Dirtied = c.Accessed, c.Added, c.Dirtied
}

// percent is absent if the whole is 0.
func percent(part, whole uint64) value.Percent {
	if whole == 0 {
		return value.Percent(math.NaN())
	}
	return value.Percent(100 * float64(part) / float64(whole))
}

// less returns a - b, or 0 if b is greater.
func less(a, b uint64) uint64 { return a - min(a, b) }
