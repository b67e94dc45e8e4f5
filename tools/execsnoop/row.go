package execsnoop

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type pathNames struct {
	Len, RootLen      uint32
	InRoot, Truncated uint8
	_                 [2]byte
}

type execNames struct {
	FileLen, InterpLen uint32
	Exe, Cwd           pathNames
}

type event struct {
	value.Task
	Age           value.Nanoseconds `json:"age_ns" col:"AGE(ms),width=9,right" help:"time since the process was forked (CLOCK_BOOTTIME)" btf:"age_ns"`
	Ret           int32             `json:"ret" col:"RET,width=3,right" help:"what the call returned: 0, or -errno"`
	PPID          uint32            `json:"ppid" col:"PPID,width=7" help:"process id of the parent, in the initial PID namespace"`
	CPU           uint32            `json:"cpu" col:"CPU,width=3,right,extra" help:"CPU that the event was seen on"`
	DirFD         int32             `btf:"dfd"`
	DataLen       uint32
	ArgsLen       uint32
	ArgsOff       uint32
	ArgsMore      bool
	ArgsTruncated bool `json:"args_truncated" col:"CUT,width=5" help:"arguments are missing at the end: not resident in memory, too many of a failed call, no room in the event buffer, or --max-args"`
	_             [2]byte
	Names         execNames
	ParentComm    value.Comm `json:"parent_comm" col:"PARENT,width=16" help:"name of the parent's thread"`
}

// parts are what lies behind the head, in one record or in several.
type parts struct {
	Args        value.List  `json:"args" col:"ARGV,width=40" help:"arguments of the new image, argv[0] first; of a failure, those that were given"`
	File        value.Bytes `json:"file" col:"FILE,width=30" help:"the file as it was given; /dev/fd/N, as the kernel has it, for one that was given by descriptor"`
	Interpreter value.Bytes `json:"interpreter" col:"INTERPRETER,width=20" help:"what is executed in place of the file: a script's interpreter, or that of binfmt_misc"`
	Exe         value.Bytes `json:"exe" col:"EXE,width=30,need=want_exe" help:"absolute path of the executable in its mount namespace: the new image's, or the caller's where the call failed"`
	Cwd         value.Bytes `json:"cwd" col:"CWD,width=30,extra,need=want_cwd" help:"absolute path of the current directory in its mount namespace"`
}

type row struct {
	event
	Error value.Error `json:"error" col:"ERROR,width=8" help:"name of the errno of a failure"`
	parts
	Command command       `json:"command" col:"ARGS,width=40,extra" help:"what was given to exec, without argv[0]: the file and the arguments behind the first; ... where arguments are missing"`
	Elapsed value.Elapsed `json:"elapsed_ns" col:"TIME(s),width=8,extra" help:"time since the tool was started (CLOCK_BOOTTIME)"`

	start   value.Time
	maxArgs int
	quote   bool
	pending map[source]parts
}

// source is what sends records of one event at a time: a program on a CPU. So what is
// pending is bounded, also where an event's last record was lost.
type source struct {
	cpu    uint32
	failed bool
}

// Decode takes one record. It returns tool.ErrMore until the event is complete.
func (r *row) Decode(tail []byte) error {
	if err := r.split(tail); err != nil {
		return err
	}
	if r.ArgsMore || r.ArgsOff > 0 {
		if err := r.gather(); err != nil {
			return err
		}
	}
	r.finish()
	return nil
}

// split finds the parts of one record.
func (r *row) split(tail []byte) error {
	n := &r.Names
	names := n.FileLen + n.InterpLen + n.Exe.Len + n.Cwd.Len
	if int(r.DataLen) > len(tail) || names+r.ArgsLen != r.DataLen {
		return fmt.Errorf("event has %d bytes, not %d of names and %d of arguments", len(tail), names, r.ArgsLen)
	}
	next := func(n uint32) (part []byte) {
		part, tail = tail[:n:n], tail[n:]
		return part
	}
	r.parts = parts{
		File:        r.fileName(cString(next(n.FileLen))),
		Interpreter: cString(next(n.InterpLen)),
		Exe:         value.AppendPath(nil, next(n.Exe.Len), n.Exe.Truncated != 0),
		Cwd:         value.AppendPath(nil, next(n.Cwd.Len), n.Cwd.Truncated != 0),
		Args:        next(r.ArgsLen),
	}
	return nil
}

// cString is a string without its NUL, or nil for one that could not be read.
func cString(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b)-1]
}

// fileName names what a failed execveat was given as the kernel names it for a success.
func (r *row) fileName(given []byte) []byte {
	if r.DirFD == unix.AT_FDCWD || given == nil || bytes.HasPrefix(given, []byte("/")) {
		return given
	}
	name := strconv.AppendInt([]byte("/dev/fd/"), int64(r.DirFD), 10)
	if len(given) > 0 {
		name = append(append(name, '/'), given...)
	}
	return name
}

// gather puts the records of one event together. The first has the names, all have arguments.
func (r *row) gather() error {
	from := source{r.CPU, r.Ret < 0}
	if r.ArgsOff == 0 {
		r.pending[from] = r.clone()
		return tool.ErrMore
	}
	all := r.pending[from]
	if len(all.Args) != int(r.ArgsOff) {
		return fmt.Errorf("record of pid %d continues %d bytes of arguments, there are %d", r.PID, r.ArgsOff, len(all.Args))
	}
	all.Args = append(all.Args, r.Args...)
	if r.ArgsMore {
		r.pending[from] = all
		return tool.ErrMore
	}
	delete(r.pending, from)
	r.parts = all
	return nil
}

func (p parts) clone() parts {
	p.File, p.Interpreter, p.Args = bytes.Clone(p.File), bytes.Clone(p.Interpreter), bytes.Clone(p.Args)
	return p
}

// finish fills what follows from the rest.
func (r *row) finish() {
	r.Error = value.Error(r.Ret)
	r.Elapsed = value.Elapsed(r.Time - r.start)
	r.Command.set(r.File, given(r.Args, r.File, r.Interpreter != nil))
	if r.maxArgs > 0 {
		args, cut := first(r.Args, r.maxArgs)
		r.Args, r.ArgsTruncated = args, r.ArgsTruncated || cut
		r.Command.List, _ = first(r.Command.List, r.maxArgs)
	}
	r.Command.quote, r.Command.cut = r.quote, r.ArgsTruncated
}

// named tells whether the task's name, the file or an argument contains text.
func (r *row) named(text string) bool {
	return strings.Contains(r.Comm.String(), text) || bytes.Contains(r.Command.List, []byte(text))
}
