// Package opensnoop shows the files that are opened.
package opensnoop

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh opensnoop.bpf.c

type options struct {
	Timestamp bool     `flag:"timestamp,T" help:"show the time"`
	PrintUID  bool     `flag:"print-uid,U" help:"show the user id"`
	Extended  bool     `flag:"extended-fields,e" help:"show the flags and the mode"`
	Failed    bool     `flag:"failed,x" bpf:"targ_failed" help:"only opens that failed"`
	Name      string   `flag:"name,n" arg:"TEXT" bpf:"targ_name" help:"only tasks whose name contains this"`
	Flags     []string `flag:"flag-filter,f" arg:"FLAG" help:"only opens with one of these flags, as O_CREAT"`
	Path      string   `flag:"path" arg:"PATH" help:"only this path as the task gave it; /etc/* for a beginning, *.so for an end"`
	Callers   bool     `flag:"callers,c" help:"show the functions of the process that led to the open"`
	FullPath  bool     `flag:"full-path,F" bpf:"want_full_path" help:"show absolute paths"`
	Pages     int      `flag:"buffer-pages,b" help:"size of the event buffer in pages, for BCC's sake"`
	tool.UserStacks
}

type pathNames struct {
	Len, RootLen      uint32
	InRoot, Truncated uint8
	_                 [2]byte
}

type event struct {
	value.Task
	Flags    value.OpenFlags `json:"flags" col:"FLAGS,width=20" help:"flags of the call by name, the access mode first"`
	Ret      int32           `json:"ret" col:"RET,width=3,right" help:"what the call returned: the new descriptor or -errno"`
	DirFD    int32           `json:"dirfd" col:"DIRFD,width=5,right" help:"descriptor of the directory that a relative path starts from, -100 (AT_FDCWD) for the current one" btf:"dfd"`
	Mode     uint32
	PathLen  uint32
	Base     pathNames
	StackLen uint32
}

type row struct {
	event
	FD        int32          `json:"fd" col:"FD,width=3,right" help:"the new descriptor, -1 for a failure"`
	Errno     int32          `json:"errno" col:"ERR,width=3,right" help:"errno of a failure, else 0"`
	Error     value.Error    `json:"error" col:"ERROR,width=8" help:"name of the errno of a failure"`
	FileMode  value.FileMode `json:"mode" col:"MODE,width=4" help:"permissions asked for, where the flags create a file"`
	Path      value.Bytes    `json:"path" col:"PATH,width=40" help:"the path as the task gave it; with -F absolute in the task's mount namespace, symbolic links as they are; absent where it could not be read, as it was at an address that is not mapped"`
	TaskPath  value.Bytes    `json:"task_path" col:"TASK_PATH,width=40" help:"with -F: the absolute path from the task's own root directory, as in its chroot or container"`
	UserStack value.Stack    `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"with -c: functions of the process that led to the open, the innermost first; text shows them below the row; of a process that is not asked for by --pid, those that keep no frame pointers are missing in its first stacks"`

	full           bool
	path, taskPath []byte
	env            *tool.Env
}

// Tool is opensnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "opensnoop",
	Category: "file",
	Summary:  "Show the files that are opened",
	Description: `Shows each open(2), creat(2), openat(2) and openat2(2), of 64-bit and of 32-bit tasks, as it ends.

An open is seen when the system call returns, by one program on raw_syscalls:sys_exit. The registers still hold the arguments then, so nothing is kept between entry and exit, and the path has been read by the kernel just before. That program runs at the end of every system call and ends at once for those that open nothing.

Opens by io_uring are seen from kernel 6.4 on (hook uring; --explain tells). A direct descriptor of io_uring is a row whose FD is what the request returned.`,
	Peers: []string{
		"-c shows all callers as far as they can be told, where libbpf-tools shows two.",
		"FLAGS are names, where libbpf-tools and BCC print an octal number.",
		"-b (BCC: pages of each CPU's perf buffer) sizes the one ring buffer.",
		"creat(2) and the opens of 32-bit tasks, which the peers do not see, are rows here.",
	},
	Examples: []string{
		"opensnoop                     # every open",
		"opensnoop -x --path '/etc/*'  # opens below /etc that fail",
		"opensnoop -F -p 1234          # absolute paths of one process",
		"opensnoop -c --path '*.conf'  # who in the program reads its configuration",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "uid": "u", "duration": "d"},
}, options{UserStacks: tool.DefaultUserStacks()}, build)

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
	e := &tool.Events[row]{
		Plan:        tool.Plan{Variables: vars, Optional: []string{"uring"}},
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

// flagFilter turns names of flags into bits; access modes are values, so each gets a
// bit of its own.
func flagFilter(names []string, vars map[string]any) error {
	var bits, access uint32
	for _, name := range names {
		b, isAccess, err := value.ParseOpenFlag(name)
		if err != nil {
			return err
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

// pathFilter tells the program what to compare: the whole path with its NUL, its
// beginning, or its end with the NUL.
func pathFilter(pattern string, vars map[string]any) error {
	if pattern == "" {
		return nil
	}
	text, isStart := strings.CutSuffix(pattern, "*")
	text, isEnd := strings.CutPrefix(text, "*")
	if isStart && isEnd || text == "" {
		return errors.New("--path takes one * at its beginning or end; use --filter 'path contains \"…\"' for more")
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

// Decode reads the path and, behind it, the names of the directory it starts from and the
// addresses of who called.
func (r *row) Decode(tail []byte) error {
	stack := int(r.PathLen + r.Base.Len)
	if stack+int(r.StackLen) > len(tail) {
		return fmt.Errorf("event has %d bytes of paths and stack, not %d", len(tail), stack+int(r.StackLen))
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
	if r.full && r.Path != nil {
		r.resolve(tail[r.PathLen:][:r.Base.Len])
	}
	return nil
}

func (r *row) resolve(names []byte) {
	given := r.Path
	cut := r.Base.Truncated != 0
	r.path = appendBelow(r.path[:0], names, cut, given)
	r.Path = r.path
	if r.Base.InRoot != 0 {
		r.taskPath = appendBelow(r.taskPath[:0], names[:r.Base.RootLen], false, given)
		r.TaskPath = r.taskPath
	}
}

// appendBelow appends the base directory and the path below it.
func appendBelow(b, names []byte, cut bool, path []byte) []byte {
	if len(names) > 0 || cut {
		b = value.AppendPath(b, names, cut)
	}
	path = bytes.TrimLeft(path, "/")
	return append(append(b, '/'), path...)
}
