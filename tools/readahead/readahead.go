// Package readahead shows the age of read-ahead pages when they are first used.
package readahead

import (
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh readahead.bpf.c

type options struct {
	source.Interval
	PIDs bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"one histogram per process that read ahead"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	PID  uint32
	Comm value.Comm
}

type label struct {
	PID  uint32     `json:"pid" help:"process that read ahead, in the initial PID namespace"`
	Comm value.Comm `json:"comm" col:"COMM,width=16,bare" help:"its name (of its thread-group leader)"`
}

// Tool is the definition of readahead.
var Tool = tool.Define(tool.Spec{
	Name:     "readahead",
	Category: "file",
	Summary:  "Age of read-ahead pages of the page cache at their first use, as a histogram, and unused pages",
	Description: `Shows how long pages that the kernel read ahead waited for their first use, in milliseconds, as a histogram with one value per page. Pages that are used late, or never, cost memory and I/O.

A page is read ahead if page_cache_ra_unbounded() or page_cache_ra_order() adds it to the page cache (tracepoint mm_filemap_add_to_page_cache): for a sequential read, a page fault in a mapped file, readahead(2), or posix_fadvise(2) and madvise(2) with WILLNEED. These functions also add the pages that a read itself asked for: their age is the time that the read waited for them. The first use is the first call of folio_mark_accessed() (mark_page_accessed() before kernel 5.16) for the page, as by read(2). Times are CLOCK_MONOTONIC.

With large folios, the kernel reports the use of a folio, not of a page: all pages of the folio are then used, and counted with the same age. Access to mapped memory is reported only when the mapping ends, or by the reclaim of memory. Pages that the file system reads ahead with functions of its own are not traced.

The summary has the numbers of pages: total_pages that were read ahead, used_pages of them that were used, removed_pages that were removed from the page cache before that, such as by reclaim or because the file was deleted, and unused_pages that are in the page cache at the end of the run. Task filters and --pids select by the task that read ahead, not by the one that used the page.`,
	Peers: []string{
		"Counts of pages are in the summary: unused/total pages of libbpf-tools and BCC is the sum of unused_pages and removed_pages, and total_pages.",
		"A page whose memory was freed is removed. The peers take the next use of that memory for the use of the page.",
		"All pages of a large folio are counted. The peers count a folio as one page.",
		"-d is --duration. Intervals, --pids and task filters are additional.",
	},
	Examples: []string{
		"readahead               # one report at the end",
		"readahead -d 30         # over 30 seconds",
		"readahead -P -p 1234 5  # pages that one process read ahead, every five seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Hists[histKey, label]{
		Plan: tool.Plan{
			// Only newer kernels have large folios.
			Optional: []string{"order"},
			Settle:   []tool.Iterator{{Program: "settle", Map: "births"}},
		},
		Interval: o.Interval,
		Unit:     histogram.Milliseconds,
		Label:    func(k histKey) label { return label(k) },
		Keys:     source.Keys(o),
	}, nil
}
