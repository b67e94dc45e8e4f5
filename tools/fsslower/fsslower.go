// Package fsslower traces slow file system operations.
package fsslower

import (
	"errors"
	"path"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/fsop"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh fsslower.bpf.c

type options struct {
	fsop.Options
	Calls    bool               `flag:"system-calls" help:"trace reads and writes of regular files of all types of file systems, as system calls, in the form of BCC's fileslower"`
	AllFiles bool               `flag:"all-files,a" bpf:"targ_all_files" help:"with --system-calls: include files that are not regular: sockets, pipes, devices"`
	Min      flags.Milliseconds `flag:"min,m" pos:"min_ms" arg:"MS" bpf:"targ_min_ns" help:"only operations that take at least this time: milliseconds, or with a unit as 500us"`
	FullPath bool               `flag:"full-path,F" help:"show paths instead of names"`
	CSV      bool               `flag:"csv,c" sets:"output=csv" help:"same as --output csv"`
	Comma    bool               `flag:"comma,j" sets:"output=csv" help:"same as --output csv, for compatibility with BCC"`
	Script   bool               `flag:"separated,s" sets:"output=csv" help:"same as --output csv, for compatibility with BCC's f2fsslower"`
}

type event struct {
	value.Task
	Latency value.Nanoseconds `json:"latency_ns" col:"LAT(ms),width=7,right" help:"time from start to end of the operation, CLOCK_MONOTONIC: of the file system's function; with hook syscall of the system call, which includes the virtual file system, locks and path lookups" btf:"ns"`
	Ret     int64
	Off     int64        `btf:"offset"`
	Op      value.FileOp `json:"operation" col:"T,width=1" help:"read, write, open, fsync (and fdatasync) or getattr (stat and similar; unavailable with hook syscall); text and CSV show the first letter"`
	_       uint32
	value.File
}

type row struct {
	event
	source.Elapsed
	Bytes  value.Count  `json:"bytes" col:"BYTES,width=7" help:"bytes read or written, possibly fewer than requested; absent for other operations and failures"`
	Offset value.Offset `json:"offset_bytes" col:"OFF_KB,width=8" help:"file offset at which a read or write started; text shows units of 1,024; absent for other operations, and with hook syscall if the call does not contain it (sendfile, splice, copy_file_range, preadv2, pwritev2, pread and pwrite of 32-bit tasks, pwrite to a file opened with O_APPEND)"`
	Error  value.Error  `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed operation"`
	Name   value.Bytes  `json:"file" col:"FILENAME,width=20" help:"name of the file"`
	Path   value.Bytes  `json:"path" col:"PATH,width=40" help:"path of the file, absolute in its mount namespace; ... before a path that is too long"`

	path []byte
}

// Decode computes the derived columns.
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

// Tool is the definition of fsslower.
var Tool = tool.Define(tool.Spec{
	Name:     "fsslower",
	Also:     append(fsop.Aliases("slower"), tool.Alias{Name: "fileslower", Args: []string{"--system-calls"}}),
	Category: "file",
	Summary:  "Trace slow file system operations (read, write, open, fsync, getattr)",
	Description: "Shows each read, write, open, fsync and getattr of a file that takes 10 ms or more (-m), when it ends. The time includes all waits of the task: for disks, the network, locks and memory. Reads from the page cache are operations too, but usually short.\n\n" +
		"With --system-calls, or as fileslower, operations are read and write system calls on regular files of any type of file system, also those in memory such as tmpfs. With -a they include sockets, pipes and devices, where a read waits for data.\n\n" + fsop.Text(),
	Peers: []string{
		"Without -t all types are shown, with a column FS for the type. libbpf-tools requires a type.",
		"The threshold is -m or the only argument, as in libbpf-tools and BCC. -j and, for f2fsslower, -s (BCC) are -c. CSV has the columns of JSON, with their names; those of BCC differ.",
		"Failed operations are shown with error; the peers show them with odd sizes. Operations that are only queued (AIO, io_uring) are not shown, but counted in the summary.",
		"getattr is traced for all types; in BCC only for NFS. BYTES of an fsync is -; libbpf-tools shows LL_MAX.",
		"fileslower traces system calls. So it includes readv, writev, their variants, sendfile, splice and copy_file_range, which BCC misses, and not the I/O of the kernel itself. BYTES is what was transferred; in BCC what was requested.",
	},
	Overhead: "With hook syscall the programs take 470 ns at the start and 270 ns at the end of each call that reads, writes, opens or syncs a file (3 million calls, busy virtual machine), and less for calls on sockets and pipes.",
	Examples: []string{
		"fsslower                  # operations of 10 ms or more, on any file system",
		"fsslower -t ext4,xfs 1    # 1 ms or more on ext4 and xfs",
		"fsslower --system-calls -a 100  # reads and writes of 100 ms or more, also of sockets and pipes",
		"fsslower -m 500us -F -p 1234 --columns +error  # one process, with paths and errors",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{Min: flags.Milliseconds(10 * time.Millisecond)}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.Calls {
		return buildCalls(o)
	}
	if o.AllFiles {
		return nil, errors.New("--all-files needs --system-calls")
	}
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	return &source.Events[row]{Plan: plan, Columns: columns(o), BufferBytes: 4 << 20}, nil
}

// buildCalls returns the source for --system-calls.
func buildCalls(o *options) (tool.Source, error) {
	if len(o.Operation) == 0 {
		o.Operation = []string{"read", "write"}
	}
	plan, err := o.SyscallPlan()
	if err != nil {
		return nil, err
	}
	columns := []string{"elapsed_ns", "comm", "tid", "operation", "bytes", "latency_ns"}
	return &source.Events[row]{
		Plan: plan, Columns: append(columns, o.fileColumn()), Headers: map[string]string{"operation": "D"}, BufferBytes: 4 << 20,
	}, nil
}

func columns(o *options) []string {
	cols := []string{"time", "comm", "pid", "operation", "bytes", "offset_bytes", "latency_ns"}
	if len(o.Type) != 1 {
		cols = append(cols, "fs")
	}
	return append(cols, o.fileColumn())
}

func (o *options) fileColumn() string {
	if o.FullPath {
		return "path"
	}
	return "file"
}
