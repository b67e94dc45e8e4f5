// Package fsslower shows operations on files that are slow.
package fsslower

import (
	"path"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/fsop"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh fsslower.bpf.c

type options struct {
	fsop.Options
	Min      flags.Milliseconds `flag:"min,m" pos:"min_ms" arg:"MS" bpf:"targ_min_ns" help:"only operations that take at least this: milliseconds, or 500us"`
	FullPath bool               `flag:"full-path,F" help:"show paths, not only names"`
	CSV      bool               `flag:"csv,c" help:"the same as --output csv"`
	Comma    bool               `flag:"comma,j" help:"the same, for BCC's sake"`
}

type event struct {
	value.Task
	Latency value.Nanoseconds `json:"latency_ns" col:"LAT(ms),width=7,right" help:"from the begin of the operation to its end, CLOCK_MONOTONIC: of the file system's function, or by the hook syscall of the system call, in which are the virtual file system, locks and look-ups of names" btf:"ns"`
	Ret     int64
	Off     int64        `btf:"offset"`
	Op      value.FileOp `json:"operation" col:"T,width=1" help:"read, write, open, fsync (fdatasync too) or getattr (stat and its like; none by the hook syscall); in text and CSV the first letter"`
	_       uint32
	value.File
}

type row struct {
	event
	Bytes  value.Count  `json:"bytes" col:"BYTES,width=7" help:"bytes that were read or written, which may be fewer than were asked for; absent for other operations and failures"`
	Offset value.Offset `json:"offset_bytes" col:"OFF_KB,width=8" help:"where in the file a read or write began; text shows units of 1,024; absent for other operations, and by the hook syscall where the call does not tell (sendfile, splice, copy_file_range, preadv2, pwritev2, 32-bit tasks' pread and pwrite, pwrite to a file that is appended to)"`
	Error  value.Error  `json:"error" col:"ERROR,width=8" help:"name of the errno of a failure"`
	Name   value.Bytes  `json:"file" col:"FILENAME,width=20" help:"name of the file"`
	Path   value.Bytes  `json:"path" col:"PATH,width=40" help:"its path, absolute in its mount namespace; \"...\" before one that is too long"`

	path []byte
}

// Decode fills what follows from the event.
func (r *row) Decode(tail []byte) error {
	var err error
	if r.path, err = r.AppendPath(r.path[:0], tail); err != nil {
		return err
	}
	isData := r.Op.IsData()
	r.Bytes = value.Count{N: uint64(r.Ret), Given: isData && r.Ret >= 0}
	r.Offset.Count = value.Count{N: uint64(r.Off), Given: isData && r.Off >= 0}
	r.Error = value.Error(min(r.Ret, 0))
	r.Path, r.Name = r.path, []byte(path.Base(string(r.path)))
	return nil
}

// Tool is fsslower.
var Tool = tool.Define(tool.Spec{
	Name:        "fsslower",
	Also:        fsop.Aliases("slower"),
	Category:    "file",
	Summary:     "Show operations on files that are slow",
	Description: "Shows each read, write, open, fsync and getattr of a file that takes 10 ms or more, as it ends. All that the task waits for is in the time: disks, the network, locks, memory. What is read from the page cache is an operation too, and a short one.\n\n" + fsop.Text(),
	Peers: []string{
		"Without -t all types are shown, with FS for the type. libbpf-tools wants one named.",
		"The floor is -m or the only argument, as in libbpf-tools and BCC. -j (BCC) is -c; f2fsslower's -s is not there.",
		"Failures are rows, with error; for the peers they have odd sizes. What is only queued (AIO, io_uring) is not a row, but counted.",
		"getattr is a row for each type, in BCC for NFS alone. BYTES of an fsync, where libbpf-tools shows LL_MAX, is -.",
		"BCC's fileslower is another tool: it looks at reads and writes of all files in the virtual file system.",
	},
	Overhead: "By the hook syscall the programs take 470 ns at the begin and 270 ns at the end of each call that reads or writes a file, opens or syncs one (3 million calls, on a busy virtual machine), and less for calls about sockets and pipes.",
	Examples: []string{
		"fsslower                  # what takes 10 ms or more, on any file system",
		"fsslower -t ext4,xfs 1    # 1 ms or more on two types of them",
		"fsslower -m 500us -F -p 1234 --columns +error  # one process, with paths and errors",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{Min: flags.Milliseconds(10 * time.Millisecond)}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	if o.CSV || o.Comma {
		plan.Output = "csv"
	}
	return &tool.Events[row]{Plan: plan, Columns: columns(o), BufferBytes: 4 << 20}, nil
}

func columns(o *options) []string {
	cols := []string{"time", "comm", "pid", "operation", "bytes", "offset_bytes", "latency_ns"}
	if len(o.Type) != 1 {
		cols = append(cols, "fs")
	}
	if o.FullPath {
		return append(cols, "path")
	}
	return append(cols, "file")
}
