// Package biolatency shows how long disks take for their I/O.
package biolatency

import (
	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh biolatency.bpf.c

type options struct {
	blockio.Options
	tool.Interval
	tool.Milliseconds
	Queued     bool `flag:"queued,Q" bpf:"targ_queued" help:"count the time in the operating system's queue too"`
	Stages     bool `flag:"stages" bpf:"want_stages" key:"stage" help:"a histogram for each of the times: queue, device and total"`
	Disks      bool `flag:"disks,D" bpf:"want_disk" key:"disk" help:"a histogram for each disk"`
	Partitions bool `flag:"partitions,P" bpf:"want_partition" key:"partition" help:"a histogram for each partition, and one for each disk that has none"`
	Flags      bool `flag:"flags,F" also:"flag" bpf:"want_flags" key:"flags" help:"a histogram for each set of flags"`
	Operations bool `flag:"operations" bpf:"want_operation" key:"operation" help:"a histogram for each operation: read, write, flush, discard, ..."`
	tool.ByOwner
	Extension bool `flag:"extension,e" help:"the mean, for BCC's sake: it is always there"`
	JSON      bool `flag:"json,j" help:"the same as --output json"`
}

// histKey is struct hist_key.
type histKey struct {
	CgroupID  uint64
	Dev, Part uint32
	Flags     uint16
	Op, Stage uint8
	_         uint32
}

type label struct {
	Stage     string `json:"stage" help:"which time it is: queue from insertion to issue, device from issue to completion, total from insertion to completion"`
	Disk      string `json:"disk" help:"disk that the I/O is for"`
	Partition string `json:"partition" help:"partition that the I/O is for, the disk if it is for no partition or not known for which"`
	Flags     string `json:"flags" help:"flags and operation of the I/O"`
	Operation string `json:"operation" help:"operation of the I/O"`
	Cgroup    string `json:"cgroup" help:"path of the cgroup that the I/O was submitted for"`
	Container string `json:"container" help:"name of the container of that cgroup, or its short id; empty for what is in none"`
}

// Tool is biolatency.
var Tool = tool.Define(tool.Spec{
	Name:     "biolatency",
	Category: "block",
	Summary:  "Show how long disks take for their I/O, as a histogram",
	Description: `Measures how long each request to a disk takes. The clock is CLOCK_MONOTONIC, read as the tracepoints block_rq_insert, block_rq_issue and block_rq_complete run.

The time that is shown is that of the device: from when the request is issued to the driver to its completion. With -Q it is the total: from when the request is inserted into the queue of the I/O scheduler, or is issued where it never was in the queue. --stages shows both, and between them the queue time from insertion to issue; for each request queue and device together are the total. What comes before there is a request is in no time: waiting for a free one, being held back by a limit of a cgroup, being collected in the task's plug.

A request that the driver gives back (requeues) is issued again, and its device time is from the last issue. One that is completed in parts is over with the last part. One that is merged into another is only counted (merges). A flush is a request of its own, so a write with a flush before and after it makes three. A request that ends with an error is counted like any other, and as an error.

An I/O belongs to the task that submits it, found at block_io_start (kernel 6.5 and later), or else when its request is first inserted or issued: for the task filters, --cgroups and --containers. It is never the task that is there at completion. What a kernel thread submits, as in writeback, is of the cgroup that the kernel accounts it to, if cgroups go by the hierarchy of the I/O controller; it is the nearest one that the controller is enabled for. Flushes are issued by a kernel thread for all who wait for one.

The disks of the device mapper, md, zram and multipath NVMe are given no requests. Their time is from block_bio_queue to block_bio_complete, as a total if there are --stages. They are seen where disks are told apart (-D, -P) or chosen (-d): elsewhere their I/O would count twice, as it is also that of the disks below.

The counters at the end: errors; requeues; merges; partial, completions of a part; in_flight, completions of what was issued before the tool was there; unmatched, completions of what was never seen to be issued; unended, requests that were used again without a completion; negative, completions before the issue. The last three are 0 unless something went wrong, and not in the histograms.`,
	Peers: []string{
		"-d, --disk DISK is the filter and -D is --disks, as in BCC. libbpf-tools has --disk as the long name of both, and takes it for -D.",
		"-F is --flags, as in BCC; --flag, as in libbpf-tools, is the same.",
		"-c and the other task filters are of the task that submits the I/O. libbpf-tools tests the task that is there at insertion, issue and completion, which at the last two may be any.",
		"A request that is completed in parts is one I/O. For libbpf-tools and BCC the first part ends it, and the rest is another one if it is issued again.",
		"With -Q libbpf-tools counts only what was inserted where a disk has a scheduler, so no flushes. Here they begin when they are issued.",
		"Flags that say how a driver may fail or poll have no name and tell no histograms apart. libbpf-tools has several of the same title then.",
		"Operations on zones have the right names on all kernels; their numbers have moved.",
		"-e (BCC: average and total) changes nothing, as count, mean and percentiles are always there. -j (BCC) is --output json, in the form of all tools here.",
	},
	Examples: []string{
		"biolatency 1 10          # a report each second, ten times",
		"biolatency -D -F         # by disk and flags",
		"biolatency --stages -d nvme0n1 --duration 10s  # queue, device and total time of one disk",
		"biolatency --containers --operations  # by who issued it, and what it was",
		"biolatency -P --pid 1234 --filter 'p99 > 5000' 5  # partitions that are slow for one process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	o.hooks(&plan)
	return &tool.Hists[histKey, label]{
		Plan:     plan,
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label:    func(k histKey) label { return o.label(k, env) },
		Keys:     tool.Keys(o),
	}, nil
}

// hooks takes those that this run needs. Disks without requests are seen only where they
// are told apart from those that they lie on, or their I/O would count twice.
func (o *options) hooks(p *tool.Plan) {
	cgroups, bios := o.ByOwner.Wanted(), o.Disks || o.Partitions || o.Disk != ""
	p.Variables["want_owner"], p.Variables["want_bios"] = cgroups, bios
	p.Optional = append(p.Optional, "bioqueue", "biocomplete")
	if o.JSON {
		p.Output = "json"
	}
	if !cgroups {
		p.ForFilter = []string{"submit"}
	}
	if !o.Queued && !o.Stages {
		p.Without = append(p.Without, "insert")
	}
	if !bios {
		p.Without = append(p.Without, "bioqueue", "biocomplete")
		p.MapEntries["bios"] = 1
	}
}
