// Package mdflush traces flushes of md disks.
package mdflush

import (
	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh mdflush.bpf.c

type options struct{}

type event struct {
	value.Task
	Bytes uint64 `json:"bytes" col:"BYTES,width=7,right" help:"bytes that are written after the flush; 0 for a flush alone"`
	Dev   uint32
	_     uint32
}

type row struct {
	event
	Disk string `json:"disk" col:"DEVICE,width=8" help:"name of the md disk"`

	env *tool.Env
}

// Decode looks up the name of the disk.
func (r *row) Decode([]byte) error {
	r.Disk = blockio.DiskName(r.Dev, r.env)
	return nil
}

// Tool is the definition of mdflush.
var Tool = tool.Define(tool.Spec{
	Name:     "mdflush",
	Category: "block",
	Summary:  "Trace flushes of md (software RAID) disks, with the process that causes them",
	Description: `Shows each request to flush an md disk, with the task that submits it. A flush makes all disks below write their caches, so flushes of one program can delay the I/O of others. They are caused by fsync(2), by journals of file systems, and by kernel threads on behalf of other tasks.

A flush is traced when the md disk receives it (block:block_bio_queue): an I/O with the flag REQ_PREFLUSH, with or without data to write. The kernel removes this flag, and there is no row, if no disk below has a volatile write cache.`,
	Peers: []string{
		"Flushes are traced at a tracepoint, so neither kprobes nor fentry are needed, nor a loaded module md_mod. The peers trace the function md_flush_request, which md calls for the same I/O.",
		"The task filters exist as in all tools.",
	},
	Examples: []string{
		"mdflush                  # all flushes",
		"mdflush --filter 'disk == \"md0\"'  # of one disk",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, env *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Columns: []string{"time", "pid", "comm", "disk"}, BufferBytes: 4 << 20, Row: row{env: env},
	}, nil
}
