// Package statsnoop traces the system calls that read attributes of files.
package statsnoop

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh statsnoop.bpf.c -type stat_kind

type options struct {
	Timestamp bool `flag:"timestamp,t" help:"show the time since the start of the tool"`
	Failed    bool `flag:"failed,x" bpf:"targ_failed" help:"only failed calls"`
	Sysname   bool `flag:"sysname,s" help:"show the name of the system call"`
	FullPath  bool `flag:"full-path,F" bpf:"want_full_path" help:"show absolute paths, also of calls that have a file descriptor instead of a path"`
}

type event struct {
	value.Task
	Ret   int32 `json:"ret" col:"RET,width=4,right" help:"return value: 0, or -errno"`
	NR    uint32
	ABI   uint32
	Kind  uint32
	Given value.GivenPath `btf:"path"`
	_     uint32
}

type row struct {
	event
	source.Elapsed
	Errno    int32         `json:"errno" col:"ERR,width=4,right" help:"errno of a failed call, otherwise 0"`
	Error    value.Error   `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	Syscall  string        `json:"syscall" col:"SYSCALL,width=12" help:"name of the system call, as the kernel names it for the ABI of the task: newfstatat, fstatat64"`
	FD       value.Integer `json:"fd" col:"FD,width=4,right" help:"file descriptor of the file as given, -1 if the task passed that, for calls that have no path (fstat, fstatfs)"`
	DirFD    int32         `json:"dirfd" col:"DIRFD,width=5,right" help:"file descriptor of the directory that a relative path starts at; -100 (AT_FDCWD) for the current directory, and for calls without this argument"`
	Path     value.Bytes   `json:"path" col:"PATH,width=40" help:"path as passed by the task; with -F absolute in the task's mount namespace, with symbolic links unresolved, and also that of a file descriptor; absent for calls without a path unless -F is given, for files outside of any directory such as pipes, and if the path could not be read because its address is not mapped"`
	TaskPath value.Bytes   `json:"task_path" col:"TASK_PATH,width=40" help:"with -F: absolute path relative to the task's root directory, such as that of its chroot or container"`

	full     bool
	names    *value.Syscalls
	resolved value.ResolvedPath
}

// calls are the traced system calls of all ABIs, with the arguments that identify the file.
var calls = map[string]bpfStatKind{
	"stat": bpfStatKindSTAT_PATH, "lstat": bpfStatKindSTAT_PATH, "statfs": bpfStatKindSTAT_PATH,
	"oldstat": bpfStatKindSTAT_PATH, "oldlstat": bpfStatKindSTAT_PATH,
	"stat64": bpfStatKindSTAT_PATH, "lstat64": bpfStatKindSTAT_PATH, "statfs64": bpfStatKindSTAT_PATH,
	"newfstatat": bpfStatKindSTAT_AT, "fstatat64": bpfStatKindSTAT_AT, "statx": bpfStatKindSTAT_AT,
	"fstat": bpfStatKindSTAT_FD, "oldfstat": bpfStatKindSTAT_FD, "fstat64": bpfStatKindSTAT_FD,
	"fstatfs": bpfStatKindSTAT_FD, "fstatfs64": bpfStatKindSTAT_FD,
}

// Decode reads the path and computes the derived columns.
func (r *row) Decode(tail []byte) error {
	// An empty path names the descriptor only if the call succeeds (AT_EMPTY_PATH).
	full := r.full && (r.Given.Len != 1 || r.Ret >= 0)
	if _, err := r.resolved.Read(&r.Given, tail, full); err != nil {
		return err
	}
	r.Path, r.TaskPath = r.resolved.Path, r.resolved.TaskPath
	r.Syscall = r.names.Name(value.ABI(r.ABI), r.NR)
	r.Errno, r.Error = -min(r.Ret, 0), value.Error(r.Ret)
	r.FD, r.DirFD = value.Integer{}, r.Given.DirFD
	if r.Kind == uint32(bpfStatKindSTAT_FD) {
		r.FD, r.DirFD = value.IntOf(r.Given.DirFD), atFDCWD
	}
	return nil
}

const atFDCWD = -100

// Tool is the definition of statsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "statsnoop",
	Category: "file",
	Summary:  "Trace stat() system calls: which processes query the attributes of which files",
	Description: `Shows each system call that reads the attributes of a file or of its file system, when it returns: stat, lstat, fstat, fstatat (newfstatat), statx, statfs and fstatfs, with their 32-bit variants such as stat64.

Calls are traced by a single program at raw_syscalls:sys_exit. When a system call returns, the registers still contain its arguments, so no state is kept between entry and exit, and the kernel has just read the path.

The C library implements stat and fstat with different system calls: current versions call newfstatat or statx, and fstat with an empty path (AT_EMPTY_PATH). Calls with a file descriptor show its path with -F. Requests of io_uring (IORING_OP_STATX) are no system calls and are not traced.`,
	Peers: []string{
		"RET is -errno for a failed call; libbpf-tools shows -1. FD (BCC) is RET. ERR is the same.",
		"fstat, fstatfs, lstat, the calls of 32-bit and x32 tasks and the older variants are traced. BCC misses all of these and newfstatat on some versions; libbpf-tools interprets the descriptor of fstat as the address of a path.",
		"-F, paths of descriptors and relative paths resolved with it, and task filters other than -p are additions.",
	},
	Examples: []string{
		"statsnoop                     # all calls",
		"statsnoop -x -s               # failed calls, with the name of the system call",
		"statsnoop -F -p 1234          # absolute paths of one process",
		"statsnoop --filter 'path startsWith \"/etc/\"'  # files below /etc",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	names := value.NewSyscalls()
	var columns []string
	if o.Timestamp {
		columns = append(columns, "elapsed_ns")
	}
	columns = append(columns, "pid", "comm", "ret", "errno")
	if o.Sysname {
		columns = append(columns, "syscall")
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: map[string]any{"targ_calls": value.CallKinds(names, calls)}},
		Columns:     append(columns, "path"),
		BufferBytes: 16 << 20,
		Row:         row{full: o.FullPath, names: names},
	}, nil
}
