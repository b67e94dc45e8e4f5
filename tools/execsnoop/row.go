package execsnoop

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/value"
)

type pathNames struct {
	Len, RootLen                      uint32
	InRoot, Truncated, Known, Deleted uint8
}

type execNames struct {
	FileLen, InterpLen uint32
	Exe, Cwd           pathNames
}

type event struct {
	value.Task
	Age           value.Nanoseconds `json:"age_ns" col:"AGE(ms),width=9,right" help:"time since the fork of the process (CLOCK_BOOTTIME)" btf:"age_ns"`
	Ret           int32             `json:"ret" col:"RET,width=3,right" help:"return value: 0, or -errno"`
	PPID          uint32            `json:"ppid" col:"PPID,width=7" help:"process ID of the parent, in the initial PID namespace"`
	CPU           uint32            `json:"cpu" col:"CPU,width=3,right,extra" help:"CPU that recorded the event"`
	DirFD         int32             `btf:"dfd"`
	DataLen       uint32
	ArgsLen       uint32
	ArgsOff       uint32
	ArgsMore      bool
	ArgsTruncated bool `json:"args_truncated" col:"CUT,width=5" help:"arguments are missing at the end: not resident in memory, too many for a failed call, event buffer full, or --max-args"`
	_             [2]byte
	Names         execNames
	ParentComm    value.Comm `json:"parent_comm" col:"PARENT,width=16" help:"name of the parent process's thread"`
}

// parts contains the variable-length data after the fixed part of the event, from one or more
// records.
type parts struct {
	Args        value.List  `json:"args" col:"ARGV,width=40" help:"arguments of the new image, argv[0] first; of a failed call, those passed by the caller"`
	File        value.Bytes `json:"file" col:"FILE,width=30" help:"file as passed by the caller; if it was passed as a file descriptor, /dev/fd/N as in the kernel"`
	Interpreter value.Bytes `json:"interpreter" col:"INTERPRETER,width=20" help:"file that is executed instead: the interpreter of a script, or the one registered with binfmt_misc"`
	Exe         value.Bytes `json:"exe" col:"EXE,width=30,need=want_exe" help:"absolute path of the executable in its mount namespace: of the new image, or of the caller if the call failed; for a file that is in no directory its name, such as /memfd:NAME"`
	ExeDeleted  bool        `json:"exe_deleted" col:"EXE_DELETED,width=11,extra,need=want_exe" help:"whether the executable is in no directory: it was removed, or created by memfd_create(2)"`
	Cwd         value.Bytes `json:"cwd" col:"CWD,width=30,extra,need=want_cwd" help:"absolute path of the current directory in its mount namespace"`
}

type row struct {
	event
	Error value.Error `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	parts
	Command command `json:"command" col:"ARGS,width=40,extra" help:"the file and the arguments after argv[0] as given by the caller; ... if arguments are missing"`
	source.Elapsed

	maxArgs int
	quote   bool
	pending map[producer]parts
}

// producer identifies a program on a CPU. It sends the records of one event at a time, which bounds
// the number of pending events even if the last record of an event is lost.
type producer struct {
	cpu    uint32
	failed bool
}

// Decode decodes one record. It returns tool.ErrMore until the event is complete.
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

// split splits the data of one record into its parts.
func (r *row) split(tail []byte) error {
	n := &r.Names
	names := n.FileLen + n.InterpLen + n.Exe.Len + n.Cwd.Len
	if int(r.DataLen) > len(tail) || names+r.ArgsLen != r.DataLen {
		return fmt.Errorf("tail has %d bytes, want %d of names and %d of arguments", len(tail), names, r.ArgsLen)
	}
	next := func(n uint32) (part []byte) {
		part, tail = tail[:n:n], tail[n:]
		return part
	}
	r.parts = parts{
		File:        r.fileName(cString(next(n.FileLen))),
		Interpreter: cString(next(n.InterpLen)),
		Exe:         value.AppendPath(nil, next(n.Exe.Len), n.Exe.Truncated != 0),
		ExeDeleted:  n.Exe.Deleted != 0,
		Cwd:         value.AppendPath(nil, next(n.Cwd.Len), n.Cwd.Truncated != 0),
		Args:        next(r.ArgsLen),
	}
	return nil
}

// cString returns b without its NUL byte, or nil for a string that could not be read.
func cString(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[:len(b)-1]
}

// fileName returns the file of a failed execveat as the kernel formats that of a successful one.
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

// gather combines the records of one event. The first one has the names, all have arguments.
func (r *row) gather() error {
	from := producer{r.CPU, r.Ret < 0}
	if r.ArgsOff == 0 {
		r.pending[from] = r.clone()
		return source.ErrMore
	}
	all := r.pending[from]
	if len(all.Args) != int(r.ArgsOff) {
		return fmt.Errorf("process %d: record continues at byte %d of the arguments, have %d bytes", r.PID, r.ArgsOff, len(all.Args))
	}
	all.Args = append(all.Args, r.Args...)
	if r.ArgsMore {
		r.pending[from] = all
		return source.ErrMore
	}
	delete(r.pending, from)
	r.parts = all
	return nil
}

func (p parts) clone() parts {
	p.File, p.Interpreter, p.Args = bytes.Clone(p.File), bytes.Clone(p.Interpreter), bytes.Clone(p.Args)
	return p
}

// finish computes the derived columns.
func (r *row) finish() {
	r.Error = value.Error(r.Ret)
	r.Command.set(r.File, callerArgs(r.Args, r.File, r.Interpreter != nil))
	if r.maxArgs > 0 {
		args, cut := first(r.Args, r.maxArgs)
		r.Args, r.ArgsTruncated = args, r.ArgsTruncated || cut
		r.Command.List, _ = first(r.Command.List, r.maxArgs)
	}
	r.Command.quote, r.Command.cut = r.quote, r.ArgsTruncated
}

// named reports whether the task name, the file or an argument contains text.
func (r *row) named(name *regexp.Regexp) bool {
	if name.MatchString(r.Comm.String()) {
		return true
	}
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(r.Command.List, []byte{0}), []byte{0}) {
		if name.Match(arg) {
			return true
		}
	}
	return false
}
