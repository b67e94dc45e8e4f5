// Package biotop shows the processes with the most block I/O.
package biotop

import (
	"time"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biotop.bpf.c -type block_op

type options struct {
	source.Top
	blockio.Options
}

// key mirrors struct table_key.
type key struct {
	Task    submitter
	File    blockio.FileKey
	Dev, Op uint32
}

// submitter mirrors struct submitter.
type submitter struct {
	CgroupID uint64
	PID, UID uint32
	Comm     value.Comm
}

// counts mirrors struct table_value.
type counts struct {
	IOs, Bytes, TotalNs, Errors uint64
	Name                        [256]byte
}

type row struct {
	PID       uint32            `json:"pid" col:"PID,width=7" help:"process that submitted the I/O, in the initial PID namespace"`
	UID       uint32            `json:"uid" col:"UID,width=6" help:"real user ID of this process, in the initial user namespace"`
	Comm      value.Name        `json:"comm" col:"COMM,width=16" help:"name of the thread that submitted the I/O"`
	Op        string            `json:"op" col:"D,width=1" help:"R for reads, W for writes, D for discards, F for flushes, O for other operations"`
	Major     uint32            `json:"major" col:"MAJ,width=3" help:"major number of the disk"`
	Minor     uint32            `json:"minor" col:"MIN,width=3" help:"minor number of the disk"`
	Disk      string            `json:"disk" col:"DISK,width=8" help:"name of the disk; absent if the disk was removed"`
	IOs       uint64            `json:"ios" col:"I/O,width=7,right,counter" help:"requests completed in the interval"`
	Bytes     value.Size        `json:"bytes" col:"Kbytes,width=10,right" help:"bytes of these requests; text shows units of 1,024"`
	TotalNs   value.Nanoseconds `json:"total_ns" col:"TOTALms,width=10,right" help:"sum of the device times of these requests: from the last issue to completion, CLOCK_MONOTONIC; text shows milliseconds"`
	AverageNs value.Nanoseconds `json:"avg_ns" col:"AVGms,width=8,right" help:"mean device time per request; text shows milliseconds"`
	Errors    uint64            `json:"errors" col:"ERRORS,width=6,right" help:"requests that failed"`
	blockio.ByFile
	CgroupID uint64 `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the cgroup that the I/O is accounted to: inode number of its directory"`
}

// Tool is the definition of biotop.
var Tool = tool.Define(tool.Spec{
	Name:     "biotop",
	Category: "block",
	Summary:  "Processes with the most disk (block) I/O, as a top-like table (like iotop)",
	Description: `Counts block I/O requests per interval (one second by default) by process, disk and operation, and shows the rows with the most bytes first.

A request is counted on completion (block_rq_complete), with all its bytes, even if it completed in parts. Its time is that of the device: from the last issue to the driver (block_rq_issue) to completion. Reads from the page cache, and writes to it that have not reached the disk, are not requests.

A request belongs to the task that submitted it. This task is recorded at block_io_start (kernel 6.5 and later), otherwise when the request is first inserted or issued; it is never the task that is current at completion. Writeback is submitted by kernel threads; its cgroup is the one that the kernel accounts it to, provided that cgroup IDs refer to the hierarchy of the I/O controller. A flush of the disk's cache, as for fsync(2), belongs to the task that is current when the kernel issues it, often a kernel worker (kworker): the kernel combines the flushes that several tasks wait for into one request. A request that is merged into another one is counted as part of it, for the task of the latter.

I/O of device mapper and md disks is shown as I/O of the underlying disks. The counters in the summary are those of biolatency(8), and two of biosnoop(8): dirtiers_evicted and files_unread.

With --columns +file,owner, requests are also counted by the file whose data they transfer and by the task that made it dirty; biosnoop(8) defines both. Nothing of that is loaded without these columns.`,
	Peers: []string{
		"Kernels 5.17 to 6.4 are supported; libbpf-tools and BCC find no function to attach to there.",
		"Discards, flushes and other operations have letters of their own. libbpf-tools and BCC show them as reads.",
		"A request that completes in parts is one I/O, with the bytes of all parts.",
		"--sort all sorts by bytes; the peers sort by the sum of count, bytes and microseconds.",
		"-d, --disk exists as in biosnoop. JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
	},
	Examples: []string{
		"biotop                 # a screen of the busiest processes, each second",
		"biotop -C 5 3          # three tables of five seconds each",
		"biotop -s time -r 5    # by device time, five rows",
		"biotop --columns +file,owner  # by file, and by the task whose data is written back",
		"biotop -d vda --columns +container --output json  # one disk, with the container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: source.TopBy("all")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Variables["want_owner"] = true
	blockio.PlanFile(&plan, nil)
	return &source.Table[key, counts, row]{
		Plan: plan, Top: &o.Top,
		Columns:   []string{"pid", "comm", "op", "major", "minor", "disk", "ios", "bytes", "avg_ns"},
		SortNames: map[string]string{"all": "bytes", "io": "ios", "time": "total_ns"},
		Label:     func(k *key, c *counts) row { return label(k, c, env) },
		Fill:      fill,
	}, nil
}

func label(k *key, c *counts, env *tool.Env) row {
	disk, _ := env.Disks.Name(k.Dev)
	return row{
		PID: k.Task.PID, UID: k.Task.UID, Comm: value.NameOf(k.Task.Comm[:]), CgroupID: k.Task.CgroupID,
		Op: operation(k.Op), Major: k.Dev >> 20, Minor: k.Dev & (1<<20 - 1), Disk: disk,
		ByFile: k.File.Columns(c.Name[:], env),
	}
}

// operation returns the letter of an operation (enum block_op). All without a letter of their own
// share one row.
func operation(op uint32) string {
	switch bpfBlockOp(op) {
	case bpfBlockOpBLOCK_OP_READ:
		return "R"
	case bpfBlockOpBLOCK_OP_WRITE:
		return "W"
	case bpfBlockOpBLOCK_OP_FLUSH:
		return "F"
	case bpfBlockOpBLOCK_OP_DISCARD:
		return "D"
	}
	return "O"
}

func fill(r *row, c *counts, _ time.Duration) {
	r.IOs, r.Bytes, r.Errors = c.IOs, value.Size(c.Bytes), c.Errors
	r.TotalNs = value.Nanoseconds(c.TotalNs)
	if c.IOs > 0 {
		r.AverageNs = value.Nanoseconds(c.TotalNs / c.IOs)
	}
}
