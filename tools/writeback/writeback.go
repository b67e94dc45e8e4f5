// Package writeback traces the kernel's writeback of modified pages.
package writeback

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh writeback.bpf.c -type reason

type options struct{}

type event struct {
	value.Task
	Latency value.Nanoseconds `json:"latency_ns" col:"ms,width=8,right" help:"time from writeback_start to writeback_written, CLOCK_MONOTONIC; unless sync_all is true, the disk may not have written all pages by then; text shows milliseconds" btf:"latency_ns"`
	Pages   int64             `json:"pages" col:"PAGES,width=8,right" help:"pages written by the run, by the kernel's own count: the decrease of nr_pages of the work"`
	Why     uint32            `btf:"reason"`
	SyncAll bool              `json:"sync_all" col:"SYNC_ALL,width=8" help:"whether the run waits for the disk (WB_SYNC_ALL), as for sync(2) and fsync(2)" btf:"waits"`
	_       [3]uint8
	Name    [64]byte `btf:"device"`
}

type row struct {
	event
	Device value.Name `json:"device" col:"DEVICE,width=10" help:"name of the backing device: device number major:minor of a disk or a network file system, or a name such as btrfs-1"`
	Reason string     `json:"reason" col:"REASON,width=13" help:"why the kernel writes, as its enum wb_reason: background (too many modified pages), periodic (pages are old), sync, vmscan (memory is short), fs_free_space, foreign_flush (pages of another cgroup), forker_thread, laptop_timer, dontcache; other for a reason that this version does not know"`
}

// reasons are the names of enum reason.
var reasons = [...]string{
	bpfReasonREASON_OTHER: "other", bpfReasonREASON_BACKGROUND: "background", bpfReasonREASON_VMSCAN: "vmscan",
	bpfReasonREASON_SYNC: "sync", bpfReasonREASON_PERIODIC: "periodic", bpfReasonREASON_LAPTOP_TIMER: "laptop_timer",
	bpfReasonREASON_FS_FREE_SPACE: "fs_free_space", bpfReasonREASON_FORKER_THREAD: "forker_thread",
	bpfReasonREASON_FOREIGN_FLUSH: "foreign_flush", bpfReasonREASON_DONTCACHE: "dontcache",
}

// Decode computes the derived columns.
func (r *row) Decode(_ []byte) error {
	r.Device = value.NameOf(r.Name[:])
	r.Reason = reasons[r.Why%uint32(len(reasons))]
	return nil
}

// Tool is the definition of writeback.
var Tool = tool.Define(tool.Spec{
	Name:     "writeback",
	Category: "file",
	Summary:  "Trace writeback of modified (dirty) pages to disk, with reason and duration",
	Description: `Shows each run in which a worker thread of the kernel writes modified pages of files, when it ends: the device, the number of pages, why the kernel writes, and how long it took. A run is an iteration of the kernel's writeback loop, from writeback:writeback_start to writeback:writeback_written. It can write no pages.

Tasks that wait for writeback are visible with syncsnoop(8) and offcputime(8); block requests with biosnoop(8). fsync(2) of a single file writes the pages itself and causes no run.

The task columns describe the worker thread, not the tasks that modified the pages. A run in progress at the start or end of the tool is not shown.`,
	Peers: []string{
		"PAGES is the number of pages that the run has written. bpftrace shows the low 16 bits of the number that it was still asked to write, which is usually LONG_MAX minus the pages written.",
		"Runs are matched by thread; bpftrace matches them by device, which confuses the runs of several cgroups on one device.",
		"TIME has no milliseconds in text; JSON has nanoseconds.",
	},
	Examples: []string{
		"writeback                # all runs",
		"writeback --filter 'device == \"254:0\" and pages > 0'  # runs that write to one disk",
	},
	Object: loadBpf,
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Columns:     []string{"time", "device", "pages", "reason", "latency_ns"},
		BufferBytes: 1 << 20,
	}, nil
}
