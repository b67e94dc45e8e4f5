// Package opensnoop traces open() system calls.
package opensnoop

import (
	"errors"
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh opensnoop.bpf.c

type options struct {
	Timestamp bool     `flag:"timestamp,T" help:"show the time"`
	PrintUID  bool     `flag:"print-uid,U" help:"show the user ID"`
	Extended  bool     `flag:"extended-fields,e" help:"show flags and mode"`
	Failed    bool     `flag:"failed,x" bpf:"targ_failed" help:"only failed calls"`
	Name      string   `flag:"name,n" arg:"TEXT" bpf:"targ_name" help:"only tasks whose name contains this text"`
	Flags     []string `flag:"flag-filter,f" arg:"FLAG" help:"only calls with one of these flags, such as O_CREAT"`
	Path      string   `flag:"path" arg:"PATH" help:"only this path, as given by the task; /etc/* matches a prefix, *.so a suffix"`
	Callers   bool     `flag:"callers,c" help:"show the user stack trace of the call"`
	FullPath  bool     `flag:"full-path,F" bpf:"want_full_path" help:"show absolute paths"`
	Exec      string   `flag:"exec" arg:"COMMAND" help:"run this command, with a shell if it contains shell syntax, and trace the calls of all its processes until it ends; its output goes to standard error"`
	Pages     int      `flag:"buffer-pages,b" min:"1" max:"262144" help:"size of the event buffer in pages, for compatibility with BCC"`
	stacktrace.UserStacks
}

type event struct {
	value.Task
	Flags    value.OpenFlags `json:"flags" col:"FLAGS,width=20" help:"flags of the call by name, access mode first"`
	Ret      int32           `json:"ret" col:"RET,width=3,right" help:"return value: the new file descriptor, or -errno"`
	DirFD    int32           `json:"dirfd" col:"DIRFD,width=5,right" help:"file descriptor of the directory that a relative path starts at; -100 (AT_FDCWD) for the current directory" btf:"dfd"`
	Mode     uint32
	PathLen  uint32
	Base     value.PathNames
	StackLen uint32
}

type row struct {
	event
	FD        int32          `json:"fd" col:"FD,width=3,right" help:"new file descriptor, -1 for a failed call"`
	Errno     int32          `json:"errno" col:"ERR,width=3,right" help:"errno of a failed call, otherwise 0"`
	Error     value.Error    `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	FileMode  value.FileMode `json:"mode" col:"MODE,width=4" help:"requested permissions, if the flags can create a file"`
	Path      value.Bytes    `json:"path" col:"PATH,width=40" help:"path as passed by the task; with -F absolute in the task's mount namespace, with symbolic links unresolved and without any .. that would lead above the task's root, but unchanged if it is relative to a file descriptor that is not open; absent if it could not be read because its address is not mapped; of a path of more than 4,095 bytes, which the kernel refuses, the first 4,095"`
	TaskPath  value.Bytes    `json:"task_path" col:"TASK_PATH,width=40" help:"with -F: absolute path relative to the task's root directory, such as that of its chroot or container"`
	UserStack value.Stack    `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"with -c: user stack trace of the call, innermost frame first; text shows it below the row; in the first stacks of a process not selected by --pid, functions without frame pointers are missing"`

	full     bool
	resolved value.ResolvedPath
	env      *tool.Env
}

// Tool is the definition of opensnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "opensnoop",
	Category: "file",
	Summary:  "Trace open() system calls: files opened by processes",
	Description: `Shows each open(2), creat(2), openat(2) and openat2(2) of 64-bit and 32-bit tasks when it returns.

Calls are traced by a single program at raw_syscalls:sys_exit. When a system call returns, the registers still contain its arguments, so no state is kept between entry and exit, and the kernel has just read the path. The program runs at the end of every system call and returns immediately if the call opens no file.

With --exec, the calls of the command and of all its descendants are traced, from the execve of the command on, and of the shell that runs it if it contains shell syntax. A descendant that could not be tracked is counted as lost (map_full). The run ends with the command; if the command fails, the run fails too.

Opens by io_uring are traced on kernel 6.4 and later (hook uring; see --explain). For a direct descriptor of io_uring, FD is the result of the request.`,
	Peers: []string{
		"-c shows all callers that can be unwound; libbpf-tools shows two.",
		"-T shows the time of day, as libbpf-tools; BCC shows seconds since the start.",
		"--exec takes the command as one argument, such as --exec 'make -s all'; BCC uses the rest of the command line.",
		"FLAGS are names; libbpf-tools and BCC print an octal number.",
		"-b (BCC: pages of the perf buffer of each CPU) sets the size of the single ring buffer.",
		"creat(2) and calls of 32-bit tasks, which the peers miss, are traced.",
	},
	Examples: []string{
		"opensnoop                     # all calls",
		"opensnoop -x --path '/etc/*'  # failed opens below /etc",
		"opensnoop -F -p 1234          # absolute paths of one process",
		"opensnoop -c --path '*.conf'  # which functions read configuration files",
		"opensnoop --exec 'make -s'    # files that a command and its children open",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "uid": "u", "duration": "d"},
}, options{UserStacks: stacktrace.DefaultUserStacks()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	vars := map[string]any{}
	if err := flagFilter(o.Flags, vars); err != nil {
		return nil, err
	}
	if err := pathFilter(o.Path, vars); err != nil {
		return nil, err
	}
	buffer := 16 << 20
	if o.Pages > 0 {
		buffer = o.Pages * 4096
	}
	e := &source.Events[row]{
		Plan:        tool.Plan{Variables: vars, Optional: []string{"uring"}, Exec: o.Exec},
		Columns:     columns(o),
		BufferBytes: buffer,
		Row:         row{full: o.FullPath, env: env},
	}
	if o.Callers {
		e.UserStacks, e.Plan.Keep = &o.UserStacks, tool.UserStackNeeds()
		e.Extra = []string{"user_stack"}
		e.Columns = append(e.Columns, e.Extra...)
	}
	return e, nil
}

func columns(o *options) []string {
	var cols []string
	if o.Timestamp {
		cols = append(cols, "time")
	}
	if o.PrintUID {
		cols = append(cols, "uid")
	}
	cols = append(cols, "pid", "comm", "fd", "errno")
	if o.Extended {
		cols = append(cols, "flags", "mode")
	}
	return append(cols, "path")
}

// flagFilter sets the variables for flag names. Access modes are values, not bits, so each is
// represented by a bit in a second mask.
func flagFilter(names []string, vars map[string]any) error {
	var bits, access uint32
	for _, name := range names {
		b, isAccess, err := value.ParseOpenFlag(name)
		if err != nil {
			return fmt.Errorf("--flag-filter: %w", err)
		}
		if isAccess {
			access |= 1 << b
		} else {
			bits |= uint32(b)
		}
	}
	vars["targ_flags"], vars["targ_access"] = bits, access
	return nil
}

// pathFilter sets the text that the BPF program compares: the whole path with its NUL byte, a prefix,
// or a suffix with the NUL byte.
func pathFilter(pattern string, vars map[string]any) error {
	if pattern == "" {
		return nil
	}
	text, isStart := strings.CutSuffix(pattern, "*")
	text, isEnd := strings.CutPrefix(text, "*")
	if isStart && isEnd || text == "" {
		return errors.New("--path supports one * at the start or the end; use --filter 'path contains \"…\"' for other patterns")
	}
	if !isStart {
		text += "\x00"
	}
	if len(text) > 256 {
		return fmt.Errorf("--path is longer than 255 bytes")
	}
	vars["targ_path"] = text
	vars["targ_path_is_end"] = isEnd
	return nil
}

// Decode reads what follows the event: the path, the names of the directory that it is relative to,
// and the addresses of the user stack.
func (r *row) Decode(tail []byte) error {
	stack := int(r.PathLen + r.Base.Len)
	if stack+int(r.StackLen) > len(tail) {
		return fmt.Errorf("tail has %d bytes, want %d of paths and stack", len(tail), stack+int(r.StackLen))
	}
	r.UserStack = r.env.UserStack(r.UserStack, tail[stack:][:r.StackLen])
	r.FD, r.Errno = r.Ret, 0
	if r.Ret < 0 {
		r.FD, r.Errno = -1, -r.Ret
	}
	r.Error = value.Error(r.Ret)
	r.FileMode = value.FileMode{Bits: r.Mode, Given: r.Flags.HasMode()}
	r.TaskPath = nil
	if r.Path = nil; r.PathLen > 0 {
		r.Path = tail[:r.PathLen-1]
	}
	if r.full && len(r.Path) > 0 {
		r.resolved.Set(&r.Base, tail[r.PathLen:][:r.Base.Len], r.Path)
		r.Path, r.TaskPath = r.resolved.Path, r.resolved.TaskPath
	}
	return nil
}
