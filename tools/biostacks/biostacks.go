// Package biostacks shows block I/O latency by process and kernel stack.
package biostacks

import (
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh biostacks.bpf.c

type options struct {
	blockio.Options
	source.Milliseconds
	source.Stop
	stacktrace.Frames
	Files bool           `flag:"file" bpf:"want_file" key:"file,file_inode,file_device,owner,owner_pid,owner_cgroup" help:"separate histograms by the file whose data is transferred, and by the thread that the data is from"`
	Every flags.Duration `flag:"interval" arg:"TIME" min:"1ms" help:"time between reports" unset:"one report at the end by default"`
}

// histKey mirrors struct hist_key.
type histKey struct {
	Stack    stacktrace.StackID
	File     uint64
	PID, Dev uint32
	Comm     value.Comm
}

// fileEntry mirrors struct file_entry.
type fileEntry struct {
	Key  blockio.FileKey
	Name [256]byte
}

type label struct {
	Comm value.Comm `json:"comm" col:"COMM,bare" help:"name of the thread that submitted the I/O"`
	PID  uint32     `json:"pid" col:"PID,bare" help:"process ID of this thread, in the initial PID namespace"`
	Disk string     `json:"disk" col:"DISK,bare" help:"disk that the I/O is for"`
	blockio.ByFile
	KernelStack value.Trace `json:"kernel_stack" help:"kernel stack trace of the submission, innermost frame first"`
}

// Tool is the definition of biostacks.
var Tool = tool.Define(tool.Spec{
	Name:     "biostacks",
	Category: "block",
	Summary:  "Disk (block I/O) latency by process and kernel stack, as histograms",
	Description: `Measures the latency of block I/O requests from submission to completion, as one histogram per process, disk and kernel stack trace of the submission. It shows which I/O is slow: reads, page faults, file system journals or writeback.

The time starts at the tracepoint block_io_start (kernel 6.5 and later), otherwise when the request is first inserted or issued, and ends at block_rq_complete, in CLOCK_MONOTONIC. Time in queues is included. Stack and process are those of the task that is current at the start: the task that reads or waits, or a kernel thread that writes back data of others. I/O that is merged into a request is part of that request and has its stack.

Disks without requests (device mapper, md, zram) are shown as their underlying disks.

With --file, there is one histogram for each file whose data is transferred, and each thread that the data is from, in addition: of a write from the page cache, which a kernel thread submits, the last thread that made the file dirty. biosnoop(8) defines both. Nothing of that is loaded without --file. At most 16,384 files and owners are distinguished in a run: requests of others, for which files_full counts, have neither.

The counters in the summary are those of biolatency(8), and with --file dirtiers_evicted and files_unread of biosnoop(8), and files_full.`,
	Peers: []string{
		"Kernels 5.17 to 6.4 are supported: they lack the functions that libbpf-tools attaches to, but have the tracepoints used here.",
		"A request keeps the stack of its submission when another one is merged into it; libbpf-tools shows the stack of the last merge.",
		"Stacks are grouped by functions; with --address by addresses.",
		"A request that completes in parts is one I/O.",
	},
	Overhead: "As biolatency, plus the kernel stack trace at each submission: 3.3 us at submission, and 0.7 us at insertion, issue and completion together (10,000 reads of a loop device, busy virtual machine, kernel 6.18).",
	Examples: []string{
		"biostacks 10                        # all I/O of ten seconds",
		"biostacks -d nvme0n1 -m --interval 5  # one disk, in milliseconds, every five seconds",
		"biostacks --pid 1234                # I/O submitted by one process",
		"biostacks --file 10                 # by file, and by the thread whose data is written back",
		"biostacks --filter 'p99 > 10000' 60 # stacks with a p99 above 10 ms",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{Frames: stacktrace.DefaultFrames()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Variables["want_owner"], plan.Variables["want_file"] = true, o.Files
	blockio.PlanFile(&plan, map[string]uint32{"io_files": mostFiles})
	h := &source.Hists[histKey, label]{
		Plan:     plan,
		Interval: source.Interval{Rounds: source.Rounds{Every: o.Every}},
		Unit:     o.Unit(),
		Keys:     append([]string{"comm", "pid", "disk", "kernel_stack"}, source.Keys(o)...),
		Stacks:   &o.Frames,
	}
	var files *ebpf.Map
	h.Loaded = func(s *tool.Session) { files = s.Objects.Maps["io_files"] }
	h.Trace = func(k histKey, t *stacktrace.Traces) label {
		return label{
			Comm: k.Comm, PID: k.PID, Disk: blockio.DiskName(k.Dev, env), ByFile: byFile(files, k.File, env), KernelStack: t.Trace(k.Stack),
		}
	}
	return h, nil
}

// mostFiles is the number of files and owners in a run.
const mostFiles = 16 << 10

// byFile returns the columns of a file, which are absent if it is not in the map.
func byFile(files *ebpf.Map, id uint64, env *tool.Env) blockio.ByFile {
	var e fileEntry
	if id == 0 || files.Lookup(id, unsafe.Pointer(&e)) != nil {
		return blockio.ByFile{}
	}
	return e.Key.Columns(e.Name[:], env)
}
