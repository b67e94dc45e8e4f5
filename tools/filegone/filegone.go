// Package filegone traces deleted and renamed files.
package filegone

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh filegone.bpf.c -type gone_kind

type options struct {
	FullPath bool `flag:"full-path,F" bpf:"want_full_path" help:"show absolute paths"`
}

type event struct {
	value.Task
	NR        uint32
	ABI       uint32
	Flags     uint32
	Renamed   bool
	Directory bool `json:"directory" col:"DIR,width=5" help:"whether a directory was removed (rmdir, or unlinkat with AT_REMOVEDIR)"`
	_         [2]uint8
	From      value.GivenPath `btf:"path"`
	To        value.GivenPath
}

type row struct {
	event
	Action      string      `json:"action" col:"ACTION,width=6" help:"DELETE: the name was removed (the file itself remains while it has other names or is open); RENAME: the file has another name; EXCHANGE: two files have exchanged their names"`
	Syscall     string      `json:"syscall" col:"SYSCALL,width=10" help:"name of the system call"`
	Path        value.Bytes `json:"path" col:"PATH,width=40" help:"path as passed by the task; with -F absolute in the task's mount namespace, with symbolic links unresolved; absent if it could not be read"`
	NewPath     value.Bytes `json:"new_path" col:"NEW_PATH,width=40" help:"for a rename: the new path, in the same form"`
	TaskPath    value.Bytes `json:"task_path" col:"TASK_PATH,width=40" help:"with -F: absolute path relative to the task's root directory, such as that of its chroot or container"`
	NewTaskPath value.Bytes `json:"new_task_path" col:"NEW_TASK_PATH,width=40" help:"with -F, for a rename: the new path, in the same form"`
	File        value.Bytes `json:"file" col:"FILE,width=40,extra" help:"path, and for a rename > and new_path"`

	full     bool
	names    *value.Syscalls
	from, to value.ResolvedPath
	file     []byte
}

// calls are the traced system calls of all ABIs.
var calls = map[string]bpfGoneKind{
	"unlink": bpfGoneKindGONE_UNLINK, "rmdir": bpfGoneKindGONE_RMDIR, "unlinkat": bpfGoneKindGONE_UNLINKAT,
	"rename": bpfGoneKindGONE_RENAME, "renameat": bpfGoneKindGONE_RENAMEAT, "renameat2": bpfGoneKindGONE_RENAMEAT2,
}

// renameExchange is RENAME_EXCHANGE of include/uapi/linux/fs.h.
const renameExchange = 2

// Decode reads the paths and computes the derived columns.
func (r *row) Decode(tail []byte) error {
	rest, err := r.from.Read(&r.From, tail, r.full)
	if err != nil {
		return err
	}
	if _, err := r.to.Read(&r.To, rest, r.full); err != nil {
		return err
	}
	r.Syscall = r.names.Name(value.ABI(r.ABI), r.NR)
	r.Path, r.TaskPath, r.NewPath, r.NewTaskPath = r.from.Path, r.from.TaskPath, r.to.Path, r.to.TaskPath
	r.Action = "DELETE"
	r.file = append(r.file[:0], r.Path...)
	if r.Renamed {
		r.Action = "RENAME"
		r.file = append(append(r.file, " > "...), r.NewPath...)
	}
	if r.Flags&renameExchange != 0 {
		r.Action = "EXCHANGE"
	}
	r.File = r.file
	return nil
}

// Tool is the definition of filegone.
var Tool = tool.Define(tool.Spec{
	Name:     "filegone",
	Category: "file",
	Summary:  "Trace deleted and renamed files and directories (unlink, rmdir, rename)",
	Description: `Shows each name of a file or directory that a system call removes or changes: unlink, unlinkat, rmdir, rename, renameat and renameat2, when they return successfully.

Calls are traced by a single program at raw_syscalls:sys_exit. When a system call returns, the registers still contain its arguments, so no state is kept between entry and exit, and the kernel has just read the paths. A rename over an existing file also removes that file; it has one row, for the rename. A rename of a file to another name of the same file succeeds and changes nothing.

With -F, relative paths are resolved when the call returns. If a call renames or removes the directory that they are relative to, the path is the one after the call.

Requests of io_uring (IORING_OP_UNLINKAT, IORING_OP_RENAMEAT) are no system calls and are not traced; nor are files that the kernel removes itself, such as a file server does.`,
	Peers: []string{
		"FILE is the path as given by the task, with -F the absolute path; BCC shows only the last component.",
		"The exchange of two files (renameat2 with RENAME_EXCHANGE) has the action EXCHANGE; BCC shows RENAME.",
		"System calls are traced. BCC traces vfs_unlink, vfs_rmdir and vfs_rename, so it also shows files that the kernel removes itself, shows operations of overlayfs twice, and misses functions that the compiler has inlined.",
	},
	Examples: []string{
		"filegone                 # all deleted and renamed files",
		"filegone -F -p 1234      # absolute paths, of one process",
		"filegone --filter 'path endsWith \".log\"' --columns +container  # who removes logs",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	names := value.NewSyscalls()
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: map[string]any{"targ_calls": value.CallKinds(names, calls)}},
		Columns:     []string{"time", "pid", "comm", "action", "file"},
		BufferBytes: 8 << 20,
		Row:         row{full: o.FullPath, names: names},
	}, nil
}
