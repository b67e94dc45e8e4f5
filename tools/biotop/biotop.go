// Package biotop shows the processes that read and write disks most.
package biotop

import (
	"time"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biotop.bpf.c

type options struct {
	tool.Top
	blockio.Options
}

// key is struct table_key.
type key struct {
	Owner   owner
	Dev, Op uint32
}

// owner is struct io_owner.
type owner struct {
	CgroupID uint64
	PID, UID uint32
	Comm     value.Comm
}

// counts is struct table_value.
type counts struct{ IOs, Bytes, TotalNs, Errors uint64 }

type row struct {
	PID       uint32            `json:"pid" col:"PID,width=7" help:"process that submitted the I/O, in the initial PID namespace"`
	UID       uint32            `json:"uid" col:"UID,width=6" help:"its real user id, in the initial user namespace"`
	Comm      value.Name        `json:"comm" col:"COMM,width=16" help:"name of the thread that submitted it"`
	Op        string            `json:"op" col:"D,width=1" help:"R for reads, W for writes, D for discards, F for flushes, O for other operations"`
	Major     uint32            `json:"major" col:"MAJ,width=3" help:"major number of the disk"`
	Minor     uint32            `json:"minor" col:"MIN,width=3" help:"minor number of the disk"`
	Disk      string            `json:"disk" col:"DISK,width=8" help:"name of the disk; absent where it is gone"`
	IOs       uint64            `json:"ios" col:"I/O,width=7,right" help:"requests that were completed in the interval"`
	Bytes     value.Size        `json:"bytes" col:"Kbytes,width=10,right" help:"bytes of these requests; text shows units of 1,024"`
	TotalNs   value.Nanoseconds `json:"total_ns" col:"TOTALms,width=10,right" help:"time that the disk took for all of them together, from the last issue to completion, CLOCK_MONOTONIC; text shows milliseconds"`
	AverageNs value.Nanoseconds `json:"avg_ns" col:"AVGms,width=8,right" help:"mean of that time; text shows milliseconds"`
	Errors    uint64            `json:"errors" col:"ERRORS,width=6,right" help:"requests that ended with an error"`
	CgroupID  uint64            `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"id of the cgroup that the I/O was submitted for: inode of its directory"`
}

// Tool is biotop.
var Tool = tool.Define(tool.Spec{
	Name:     "biotop",
	Category: "block",
	Summary:  "Show the processes that read and write disks most",
	Description: `Counts the requests to disks by the process that submitted them, disk and operation, each second, those with the most bytes first.

A request counts when it is complete (block_rq_complete), with all its bytes, also when it was completed in parts. Its time is that of the disk: from when it was last issued to the driver (block_rq_issue). What is read from the page cache, or written there and not yet to the disk, is no request.

It belongs to the task that submits it, found at block_io_start (kernel 6.5 and later), or else when it is first inserted or issued; never to the task that is there at completion. What is written back later is submitted by a kernel thread; its cgroup is the one that the kernel accounts it to, if cgroups go by the hierarchy of the I/O controller. A request that is merged into another one is a part of that, and of its task.

The I/O of the device mapper and md shows as that of the disks below. The counters at the end are those of biolatency(8).`,
	Peers: []string{
		"It works on kernels 5.17 to 6.4, where those of libbpf-tools and BCC have no function to hang on.",
		"Discards, flushes and other operations have letters of their own. libbpf-tools and BCC show them as reads.",
		"A request that is completed in parts is one I/O, with the bytes of all parts.",
		"--sort all is by bytes; the peers add counts, bytes and microseconds up.",
		"-d, --disk is there as in biosnoop. JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
	},
	Examples: []string{
		"biotop                 # a screen of who uses the disks, each second",
		"biotop -C 5 3          # three tables of five seconds each",
		"biotop -s time -r 5    # by the time that the disks took",
		"biotop -d vda --columns +container --output json  # one disk, by container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: tool.TopBy("all")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Variables["want_owner"] = true
	return &tool.Table[key, counts, row]{
		Plan: plan, Top: &o.Top,
		Columns:   []string{"pid", "comm", "op", "major", "minor", "disk", "ios", "bytes", "avg_ns"},
		SortNames: map[string]string{"all": "bytes", "io": "ios", "time": "total_ns"},
		Label:     func(k *key, _ *counts) row { return label(k, env) },
		Fill:      fill,
	}, nil
}

func label(k *key, env *tool.Env) row {
	disk, _ := env.Disks.Name(k.Dev)
	return row{
		PID: k.Owner.PID, UID: k.Owner.UID, Comm: value.NameOf(k.Owner.Comm[:]), CgroupID: k.Owner.CgroupID,
		Op: operation(k.Op), Major: k.Dev >> 20, Minor: k.Dev & (1<<20 - 1), Disk: disk,
	}
}

// operation is the letter of an enum block_op; all that have none are one row.
func operation(op uint32) string {
	const letters = "RWFD"
	if int(op) < len(letters) {
		return letters[op : op+1]
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
