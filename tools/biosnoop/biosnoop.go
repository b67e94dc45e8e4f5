// Package biosnoop shows each request to a disk.
package biosnoop

import (
	"time"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biosnoop.bpf.c

type options struct {
	blockio.Options
	Queued    bool           `flag:"queued,Q" also:"queue" help:"show the time in the operating system's queue too"`
	Min       float64        `flag:"min,m" arg:"MS" help:"only requests that the disk took as many milliseconds for"`
	Timestamp bool           `flag:"timestamp,t" help:"show the time of day, not the seconds since the start"`
	For       flags.Duration `pos:"duration" help:"stop after this time, as --duration"`
	Pattern   bool           `flag:"pattern,P" help:"show whether the request goes on where the one before it on that disk ended"`
}

type event struct {
	value.Task
	Sector    uint64            `json:"sector" col:"SECTOR,width=10" help:"first of its sectors of 512 bytes, on the disk"`
	Bytes     uint64            `json:"bytes" col:"BYTES,width=7" help:"bytes that were read, written or discarded"`
	QueueNs   value.Nanoseconds `json:"queue_ns" col:"QUE(ms),width=7,right" help:"time from its insertion into the I/O scheduler's queue to its last issue, 0 where it was issued at once; CLOCK_MONOTONIC, text shows ms"`
	LatencyNs value.Nanoseconds `json:"latency_ns" col:"LAT(ms),width=7,right" help:"time that the disk took: from the last issue to the driver to completion, CLOCK_MONOTONIC; text shows ms"`
	Dev       uint32
	Part      uint32
	Op        uint8
	Status    uint8 `json:"status" col:"STATUS,width=6" help:"0, or why it failed: the kernel's block status (BLK_STS_*)" btf:"error"`
	Flags     uint16
	_         uint32
}

type row struct {
	event
	Elapsed   value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=11,extra" help:"time since the tool was started (CLOCK_BOOTTIME)"`
	Disk      string        `json:"disk" col:"DISK,width=7" help:"name of the disk, MAJOR:MINOR where it has none"`
	Partition string        `json:"partition" col:"PART,width=8" help:"name of the partition, of the disk where it is for none or not known for which"`
	Type      string        `json:"rwbs" col:"T,width=4" help:"what it is, in blktrace's letters: F flush before it, then R read, W write, D discard, F flush, N other, then F forced to the medium (FUA), A read ahead, S synchronous, M metadata"`
	Pattern   string        `json:"pattern" col:"P,width=1" help:"S where it begins at the end of the request before it on that disk (by completion), R where not, absent for the first"`

	start value.Time
	env   *tool.Env
	ends  map[uint32]uint64 // the sector behind the last request, by disk
}

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	r.Elapsed = value.Elapsed(r.Time - r.start)
	r.Disk, r.Partition = blockio.DiskName(r.Dev, r.env), blockio.DiskName(r.Part, r.env)
	r.Type = rwbs(r.Op, r.event.Flags)
	r.Pattern = r.pattern()
	return nil
}

func (r *row) pattern() string {
	end, known := r.ends[r.Dev]
	if r.Bytes > 0 {
		r.ends[r.Dev] = r.Sector + r.Bytes/512
	}
	switch {
	case !known:
		return ""
	case end == r.Sector:
		return "S"
	}
	return "R"
}

// Bits of block_flags in block.bpf.h.
const (
	flagSync      = 1 << 0
	flagMeta      = 1 << 1
	flagFUA       = 1 << 6
	flagPreFlush  = 1 << 7
	flagReadAhead = 1 << 8
)

// rwbs is an enum block_op with its flags, in blktrace's letters.
func rwbs(op uint8, flags uint16) string {
	letter := "N"
	if letters := "RWFD"; int(op) < len(letters) {
		letter = letters[op : op+1]
	}
	text := ""
	if flags&flagPreFlush != 0 {
		text = "F"
	}
	text += letter
	for _, f := range []struct {
		bit    uint16
		letter string
	}{{flagFUA, "F"}, {flagReadAhead, "A"}, {flagSync, "S"}, {flagMeta, "M"}} {
		if flags&f.bit != 0 {
			text += f.letter
		}
	}
	return text
}

// Tool is biosnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "biosnoop",
	Category: "block",
	Summary:  "Show each request to a disk, who made it and how long it took",
	Description: `Shows each request to a disk as it is complete (block_rq_complete), with all its bytes, also when it was completed in parts.

The latency is that of the disk: from when the request was last issued to the driver (block_rq_issue). The time in the queue before that is from its insertion (block_rq_insert).

It belongs to the task that submits it, found at block_io_start (kernel 6.5 and later), or else when it is first inserted or issued; never to the task that is there at completion. What is written back later is submitted by a kernel thread; its cgroup is the one that the kernel accounts it to, if cgroups go by the hierarchy of the I/O controller. Requests that were issued before the tool was there are not shown, but counted (in_flight).

The I/O of the device mapper and md shows as that of the disks below. The counters at the end are those of biolatency(8).`,
	Peers: []string{
		"It works on kernels 5.17 to 6.4, where those of libbpf-tools and BCC have no function to hang on.",
		"SECTOR is where the request began, and BYTES are all of it, also when it was completed in parts.",
		"-Q is --queued, as in libbpf-tools; --queue, as in BCC, is the same. -c is --cgroup. [duration] is --duration too.",
		"-P (BCC) compares with the request that was completed before on that disk.",
	},
	Examples: []string{
		"biosnoop                  # every request",
		"biosnoop -Q -d vda        # one disk, with the time in its queue",
		"biosnoop -m 10 60         # those that took 10 ms, for a minute",
		"biosnoop --columns +container --filter 'rwbs startsWith \"W\"'  # writes, and whose they are",
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
	plan.Duration = o.For
	plan.Variables["want_owner"], plan.Variables["targ_min_ns"] = true, uint64(o.Min*float64(time.Millisecond))
	start, err := system.BootNow()
	if err != nil {
		return nil, err
	}
	return &tool.Events[row]{
		Plan: plan, Columns: o.columns(), BufferBytes: 4 << 20,
		Row: row{start: value.Time(start), env: env, ends: map[uint32]uint64{}},
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
