// Package biolatency shows block I/O latency as histograms.
package biolatency

import (
	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh biolatency.bpf.c -type stage -type block_op -type block_flag

type options struct {
	blockio.Options
	source.Interval
	source.Milliseconds
	Queued     bool `flag:"queued,Q" bpf:"targ_queued" help:"include the time in the I/O scheduler's queue"`
	Stages     bool `flag:"stages" bpf:"want_stages" key:"stage" help:"one histogram per stage: queue, device and total"`
	Disks      bool `flag:"disks,D" bpf:"want_disk" key:"disk" help:"one histogram per disk"`
	Partitions bool `flag:"partitions,P" bpf:"want_partition" key:"partition" help:"one histogram per partition, and one per disk for I/O of no partition"`
	Flags      bool `flag:"flags,F" also:"flag" bpf:"want_flags" key:"flags" help:"one histogram per set of request flags"`
	Operations bool `flag:"operations" bpf:"want_operation" key:"operation" help:"one histogram per operation: read, write, flush, discard, ..."`
	source.ByOwner
	Extension bool `flag:"extension,e" help:"no effect, for compatibility with BCC: the mean is always shown"`
	JSON      bool `flag:"json,j" sets:"output=json" help:"same as --output json"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	CgroupID  uint64
	Dev, Part uint32
	Flags     uint16
	Op, Stage uint8
	_         uint32
}

type label struct {
	Stage     string `json:"stage" help:"stage: queue (insertion to issue), device (issue to completion) or total (insertion to completion)"`
	Disk      string `json:"disk" help:"disk that the I/O is for"`
	Partition string `json:"partition" help:"partition that the I/O is for; the disk if it is for none, or if the partition is unknown"`
	Flags     string `json:"flags" help:"flags and operation of the request"`
	Operation string `json:"operation" help:"operation of the request"`
	Cgroup    string `json:"cgroup" help:"path of the cgroup that the I/O is accounted to"`
	Container string `json:"container" help:"name of the container of that cgroup, or its short ID; empty outside containers"`
}

// Tool is the definition of biolatency.
var Tool = tool.Define(tool.Spec{
	Name:     "biolatency",
	Also:     []tool.Alias{{Name: "biolatency-kp", Args: []string{"--queued"}}},
	Category: "block",
	Summary:  "Disk latency (block I/O latency) as a histogram",
	Description: `Measures the latency of block I/O requests. Times are read with CLOCK_MONOTONIC at the tracepoints block_rq_insert, block_rq_issue and block_rq_complete.

By default this is the time of the device: from issuing the request to the driver to its completion. With -Q it is the total time: from inserting the request into the queue of the I/O scheduler, or from issuing it if it was never queued. --stages shows both, and also the queue time from insertion to issue; for each request, queue and device add up to total. Time before a request exists is not included: waiting for a free request, throttling by a cgroup, and plugging in the task.

A request that the driver returns (requeue) is issued again, and its device time starts at the last issue. A request that completes in parts ends with the last part. A request that is merged into another is only counted (merges). A flush is a separate request, so a write with a flush before and after it is three requests. Requests that fail are included in the histograms and also counted as errors.

For task filters, --cgroups and --containers, an I/O belongs to the task that submitted it. This task is recorded at block_io_start (kernel 6.5 and later), otherwise when the request is first inserted or issued; it is never the task that is current at completion. I/O that kernel threads submit, such as writeback, belongs to the cgroup that the kernel accounts it to, provided that cgroup IDs refer to the hierarchy of the I/O controller; this is the nearest cgroup for which the controller is enabled. Flushes are issued by a kernel thread on behalf of all waiting tasks.

Device mapper, md, zram and NVMe multipath disks have no requests. Their latency is measured from block_bio_queue to block_bio_complete, and is a total with --stages. They are included only if I/O is grouped by disk (-D, -P) or limited to one (-d); otherwise their I/O would count twice, because it is also I/O of the underlying disks.

Counters in the summary: errors; requeues; merges; partial: completions of a part; in_flight: completions of requests issued before the tool was attached; unmatched: completions without an observed issue; unended: requests, and bios of disks without requests, whose completion was not observed; unfinished: requests and such bios still in progress when the tool ended; negative: completions before the issue. Unmatched and unended requests are lost events (unobserved): no program runs for an interrupt in the context of a process that the kernel hides from BPF. The requests issued are those shown, lost and unfinished.`,
	Peers: []string{
		"As in BCC, -d, --disk selects a disk and -D is --disks. libbpf-tools has --disk as the long name of both, and treats it as -D.",
		"-F is --flags, as in BCC; --flag, as in libbpf-tools, is an alias.",
		"-c and the other task filters test the task that submitted the I/O. libbpf-tools tests the current task at insertion, issue and completion, which is unrelated to the I/O in the last two cases.",
		"A request that completes in parts is one I/O. In libbpf-tools and BCC it ends with its first part, and the rest counts as another I/O if it is issued again.",
		"With -Q, if a disk has a scheduler, libbpf-tools counts only inserted requests, so no flushes. Here the time of a request that is never inserted starts at its issue.",
		"Flags about failing and polling in the driver have no name, and histograms are not grouped by them. libbpf-tools groups by them and prints several histograms with the same title.",
		"biolatency-kp is the variant of bpftrace's biolatency for kernels without the tracepoint block_io_start. It measures the total time, which is -Q here, and on all kernels.",
		"Zone operations have the right names on all kernels, although their numbers have changed between versions.",
		"-e (BCC: average and total) has no effect: count, mean and percentiles are always shown. -j (BCC) is --output json, in the common format of all tools.",
	},
	Examples: []string{
		"biolatency 1 10          # a report each second, ten times",
		"biolatency -D -F         # by disk and flags",
		"biolatency --stages -d nvme0n1 --duration 10s  # queue, device and total time of one disk",
		"biolatency --containers --operations  # by container and operation",
		"biolatency -P --pid 1234 --filter 'p99 > 5000' 5  # partitions with a p99 above 5 ms for one process",
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
	return &source.Hists[histKey, label]{
		Plan:     plan,
		Interval: o.Interval,
		Unit:     o.Unit(),
		Label:    func(k histKey) label { return o.label(k, env) },
		Keys:     source.Keys(o),
		Bounds: map[string]uint32{
			"stage": 3, "disk": env.Disks.Bound(), "partition": env.Disks.Bound(), "flags": 64, "operation": blockio.UsualOperations,
		},
	}, nil
}

// hooks selects the hooks of this run. Bios of disks without requests are traced only if I/O is
// grouped by or limited to a disk. Otherwise it would be counted again on the underlying disks.
func (o *options) hooks(p *tool.Plan) {
	cgroups, bios := o.ByOwner.Wanted(), o.Disks || o.Partitions || o.Disk != ""
	p.Variables["want_owner"], p.Variables["want_bios"] = cgroups, bios
	p.Optional = append(p.Optional, "bioqueue", "biocomplete")
	if !cgroups {
		p.ForFilter = []string{"submit"}
	}
	if !o.Queued && !o.Stages {
		p.Without = append(p.Without, "insert")
	}
	if !bios {
		p.Without = append(p.Without, "bioqueue", "biocomplete")
		p.MapEntries["bios"] = 1
		return
	}
	p.Settle = append(p.Settle, tool.Iterator{Program: "settle_bios", Map: "bios"})
	p.Variables["bio_queued_flag"] = blockio.BioQueuedFlag()
}
