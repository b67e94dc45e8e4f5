// Package syncsnoop traces the system calls that write files to disk.
package syncsnoop

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh syncsnoop.bpf.c -type sync_kind

type options struct{}

type event struct {
	value.Task
	Latency value.Span `json:"latency_ns" col:"LAT(ms),width=9,right" help:"time from entry to return of the call, CLOCK_MONOTONIC; absent if the entry was not observed; text shows milliseconds" btf:"latency_ns"`
	Ret     int32      `json:"ret" col:"RET,width=4,right" help:"return value: 0, or -errno"`
	NR      uint32
	ABI     uint32
	Kind    uint32
	Fd      uint32
	HasFile uint32
	value.File
}

type row struct {
	event
	source.Elapsed
	Syscall string        `json:"syscall" col:"CALL,width=15" help:"name of the system call"`
	Error   value.Error   `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call: EIO if data could not be written"`
	FD      value.Integer `json:"fd" col:"FD,width=4,right" help:"file descriptor as given, -1 if the task passed that; absent for sync and msync"`
	Path    value.Bytes   `json:"path" col:"PATH,width=40" help:"path of the file, absolute in its mount namespace; for syncfs a file in the file system that is written; ... before a path that is too long; absent for sync and msync, if the descriptor is not open, and if it was closed during the call; inode, device and fs are then absent too, and deleted is false"`

	names *value.Syscalls
	path  []byte
}

// calls are the traced system calls of all ABIs.
var calls = map[string]bpfSyncKind{
	"sync": bpfSyncKindSYNC_ALL, "msync": bpfSyncKindSYNC_MEMORY, "syncfs": bpfSyncKindSYNC_FILE_SYSTEM,
	"fsync": bpfSyncKindSYNC_FILE, "fdatasync": bpfSyncKindSYNC_FILE,
	"sync_file_range": bpfSyncKindSYNC_FILE, "arm_sync_file_range": bpfSyncKindSYNC_FILE,
}

// Decode reads the path and computes the derived columns.
func (r *row) Decode(tail []byte) (err error) {
	r.Syscall, r.Error = r.names.Name(value.ABI(r.ABI), r.NR), value.Error(r.Ret)
	r.FD = value.Integer{}
	if r.Kind >= uint32(bpfSyncKindSYNC_FILE) {
		r.FD = value.IntOf(r.Fd)
	}
	r.Path = nil
	if r.HasFile != 0 {
		r.path, err = r.AppendPath(r.path[:0], tail)
		r.Path = r.path
	}
	return err
}

// Tool is the definition of syncsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "syncsnoop",
	Category: "file",
	Summary:  "Trace sync() system calls: fsync, fdatasync, sync, syncfs, msync, with file and latency",
	Description: `Shows each system call that writes modified data of files to disk, when it returns: sync, fsync, fdatasync, syncfs, sync_file_range (arm_sync_file_range for 32-bit ARM tasks) and msync, with the file and how long the call took.

Calls are traced at raw_syscalls:sys_enter, for the time and the file, and raw_syscalls:sys_exit. A call that is in progress at the start of the tool is shown without latency; one that is in progress at the end is not shown.

Data that tasks write synchronously without such a call (O_SYNC, RWF_SYNC), requests of io_uring (IORING_OP_FSYNC, IORING_OP_SYNC_FILE_RANGE) and aio (IOCB_CMD_FSYNC), and the kernel's own writeback are not traced; writeback(8) shows the latter.`,
	Peers: []string{
		"Rows appear when the call returns, with latency, result and file; in the peers when it is called.",
		"PID, LAT(ms) and PATH follow the columns of libbpf-tools and BCC; bpftrace shows the PID second.",
		"Calls of 32-bit and x32 tasks are traced; the peers miss them.",
	},
	Examples: []string{
		"syncsnoop                # all calls",
		"syncsnoop --filter 'latency_ns > 10000000'  # calls that take more than 10 ms",
		"syncsnoop -p 1234 --columns +error  # of one process, with errors",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	names := value.NewSyscalls()
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: map[string]any{"targ_calls": value.CallKinds(names, calls)}},
		Columns:     []string{"elapsed_ns", "comm", "syscall", "pid", "latency_ns", "path"},
		BufferBytes: 4 << 20,
		Row:         row{names: names},
	}, nil
}
