// Package biosnoop traces block I/O requests.
package biosnoop

import (
	"cmp"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biosnoop.bpf.c -type block_op -type block_flag

type options struct {
	blockio.Options
	Queued    bool               `flag:"queued,Q" also:"queue" help:"show the time in the I/O scheduler's queue"`
	Min       flags.Milliseconds `flag:"min,m" arg:"MS" bpf:"targ_min_ns" help:"only requests with at least this device time: milliseconds, or with a unit as 500us"`
	Timestamp bool               `flag:"timestamp,t" help:"show the time of day instead of seconds since the start"`
	For       flags.Duration     `pos:"duration" sets:"duration" help:"stop after this time, same as --duration"`
	Pattern   bool               `flag:"pattern,P" help:"show whether the request is sequential to the previous one on the disk"`
}

type event struct {
	value.Task
	Sector    uint64            `json:"sector" col:"SECTOR,width=10" help:"first sector on the disk, in units of 512 bytes"`
	Bytes     uint64            `json:"bytes" col:"BYTES,width=7" help:"bytes read, written or discarded"`
	QueueNs   value.Span        `json:"queue_ns" col:"QUE(ms),width=7,right" help:"time from insertion into the I/O scheduler's queue to the last issue, CLOCK_MONOTONIC; absent if the request was never inserted; text shows ms"`
	LatencyNs value.Nanoseconds `json:"latency_ns" col:"LAT(ms),width=7,right" help:"time from the last issue to the driver to completion, CLOCK_MONOTONIC; text shows ms"`
	Dev       uint32
	Part      uint32
	Op        uint8
	Status    uint8 `json:"status" col:"STATUS,width=6" help:"0, or the reason of a failure: block status of the kernel (BLK_STS_*)" btf:"error"`
	Flags     uint16
	_         uint32
}

type row struct {
	event
	source.Elapsed
	Disk      string `json:"disk" col:"DISK,width=7" help:"name of the disk; MAJOR:MINOR if it has none"`
	Partition string `json:"partition" col:"PART,width=8" help:"name of the partition; of the disk if the request is for none, or if the partition is unknown"`
	Type      string `json:"rwbs" col:"T,width=4" help:"operation and flags in the letters of blktrace: F preceding flush, then R read, W write, D discard, F flush, N other, then F forced unit access (FUA), A read-ahead, S synchronous, M metadata"`
	blockio.File
	Pattern string `json:"pattern" col:"P,width=1" help:"S if the request starts at the end of the previously completed request on the disk, R if not; absent for the first"`

	env  *tool.Env
	ends map[uint32]uint64 // first sector after the last request, by disk
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) error {
	r.Disk, r.Partition = blockio.DiskName(r.Dev, r.env), blockio.DiskName(r.Part, r.env)
	r.Type = rwbs(r.Op, r.event.Flags)
	r.Pattern = r.pattern()
	return r.File.Decode(tail, r.Disk, r.env)
}

func (r *row) pattern() string {
	end, ok := r.ends[r.Dev]
	if r.Bytes > 0 {
		r.ends[r.Dev] = r.Sector + r.Bytes/512
	}
	switch {
	case !ok:
		return ""
	case end == r.Sector:
		return "S"
	}
	return "R"
}

// letters are blktrace's for operations; others have N.
var letters = map[bpfBlockOp]string{
	bpfBlockOpBLOCK_OP_READ: "R", bpfBlockOpBLOCK_OP_WRITE: "W", bpfBlockOpBLOCK_OP_FLUSH: "F", bpfBlockOpBLOCK_OP_DISCARD: "D",
}

// rwbs returns an operation (enum block_op) and its flags in the letters of blktrace.
func rwbs(op uint8, flags uint16) string {
	text := ""
	if flags>>bpfBlockFlagBLOCK_FLAG_PREFLUSH&1 != 0 {
		text = "F"
	}
	text += cmp.Or(letters[bpfBlockOp(op)], "N")
	for _, f := range []struct {
		bit    bpfBlockFlag
		letter string
	}{
		{bpfBlockFlagBLOCK_FLAG_FUA, "F"}, {bpfBlockFlagBLOCK_FLAG_RAHEAD, "A"},
		{bpfBlockFlagBLOCK_FLAG_SYNC, "S"}, {bpfBlockFlagBLOCK_FLAG_META, "M"},
	} {
		if flags>>f.bit&1 != 0 {
			text += f.letter
		}
	}
	return text
}

// Tool is the definition of biosnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "biosnoop",
	Category: "block",
	Summary:  "Trace disk (block) I/O requests with process and latency",
	Description: `Shows each block I/O request on completion (block_rq_complete), with all its bytes, even if it completed in parts.

LAT is the time of the device: from the last issue to the driver (block_rq_issue) to completion. The queue time is that from insertion (block_rq_insert) to the issue.

A request belongs to the task that submitted it. This task is recorded at block_io_start (kernel 6.5 and later), otherwise when the request is first inserted or issued; it is never the task that is current at completion. Writeback is submitted by kernel threads; its cgroup is the one that the kernel accounts it to, provided that cgroup IDs refer to the hierarchy of the I/O controller. A flush of the disk's cache, as for fsync(2), belongs to the task that is current when the kernel issues it, often a kernel worker (kworker): the kernel combines the flushes that several tasks wait for into one request. Requests that were issued before the tool was attached are counted (in_flight), but not shown.

I/O of device mapper and md disks is shown as I/O of the underlying disks. The counters in the summary are those of biolatency(8), and the two below.

With --columns +file, each row has the file whose data the request reads or writes. It is read from the request when it is issued: from the pages of the page cache, or for direct I/O from the open file. With owner, owner_pid and owner_cgroup, the row of a write from the page cache also has the task that made the data dirty, although a kernel thread submits it: the last task that made a clean page of the file dirty, since the start of the run. A page that is already dirty and is changed again has no effect. The last 16,384 files are remembered; dirtiers_evicted counts the others. What is unknown is absent: the owner of data that was dirty before the run, the file of direct I/O on a btrfs of a kernel before 6.3, on file systems that do not use iomap and below device mapper, [device] of synchronous direct I/O of up to 256 pages on a disk or partition itself (newer kernels), and files of requests with more than 64 bios (files_unread). [device] never has an owner. It is also shown for metadata that a file system reads or writes through the page cache of its device and does not mark as metadata, for example on ext2, in read-ahead, and at the mount. The path is that of one directory entry, at completion; a file with several hard links has several. Its mount point is that at the time when the row is printed. None of this is loaded without these columns.`,
	Peers: []string{
		"Kernels 5.17 to 6.4 are supported; libbpf-tools and BCC find no function to attach to there.",
		"SECTOR is the start of the request and BYTES is its full size, even if it completed in parts.",
		"-Q is --queued, as in libbpf-tools; --queue, as in BCC, is an alias. -c is --cgroup. [duration] is the same as --duration.",
		"-P (BCC) compares with the previously completed request on the same disk.",
	},
	Overhead: "With the columns of files: 0.1 to 0.4 us more at the issue of a request, and 0.2 to 0.35 us each time a page or folio of the page cache becomes dirty, on any file system (busy virtual machine, kernel 6.18). The start takes 0.2 s longer.",
	Examples: []string{
		"biosnoop                  # all requests",
		"biosnoop -Q -d vda        # one disk, with the queue time",
		"biosnoop -m 10 60         # requests of at least 10 ms, for one minute",
		"biosnoop --columns +file,owner  # with the file, and the task whose data is written back",
		`biosnoop --columns +container --filter 'rwbs startsWith "W"'  # writes, with the container`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{}, build)

// levels is the number of runs of a program on a CPU that can be interrupted by one another.
const levels = 4

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Variables["want_owner"] = true
	// An event with a path is larger, and writeback issues many requests at once.
	blockio.PlanFile(&plan, map[string]uint32{"file_events": levels, "events": 16 << 20})
	return &source.Events[row]{
		Plan: plan, Columns: o.columns(), BufferBytes: 4 << 20,
		Headers: map[string]string{"time": "TIMESTAMP"},
		Widths:  map[string]int{"elapsed_ns": 11, "time": 9},
		Row:     row{env: env, ends: map[uint32]uint64{}, File: blockio.NewFile()},
	}, nil
}

func (o *options) columns() []string {
	first := "elapsed_ns"
	if o.Timestamp {
		first = "time"
	}
	keys := []string{first, "comm", "pid", "disk", "rwbs", "sector", "bytes"}
	if o.Pattern {
		keys = append(keys, "pattern")
	}
	if o.Queued {
		keys = append(keys, "queue_ns")
	}
	return append(keys, "latency_ns")
}
