// Package mountsnoop traces the system calls that change mounts.
package mountsnoop

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh mountsnoop.bpf.c

type options struct {
	Timestamp bool `flag:"timestamp,t" help:"show the time"`
	Detailed  bool `flag:"detailed,d" help:"show the latency and the arguments as columns, instead of the call"`
	Parent    bool `flag:"parent-process,P" help:"show the parent process"`
}

const args = 5

type event struct {
	value.Task
	Latency value.Span `json:"latency_ns" col:"LAT(ms),width=7,right" help:"time from entry to return of the call, CLOCK_MONOTONIC; absent if the entry was not observed; text shows milliseconds" btf:"latency_ns"`
	Args    [args]uint64
	Attr    struct{ Set, Cleared, Propagation uint64 }
	Ret     int32 `json:"ret" col:"RET,width=4,right" help:"return value: 0, a new file descriptor, or -errno"`
	NR      uint32
	ABI     uint32
	MntNS   uint32     `json:"mntns" col:"MNT_NS,width=10" help:"mount namespace of the task: inode number of /proc/PID/ns/mnt"`
	PPID    uint32     `json:"ppid" col:"PPID,width=7" help:"parent process, in the initial PID namespace"`
	Parent  value.Comm `json:"parent_comm" col:"PCOMM,width=16" help:"name of the parent process" btf:"parent_comm"`
	Lens    [args]uint32
}

type row struct {
	event
	Syscall string        `json:"syscall" col:"SYSCALL,width=14" help:"name of the system call"`
	Op      string        `json:"operation" col:"OP,width=14" help:"the operation: name of the system call in capitals, UMOUNT for umount and umount2"`
	Error   value.Error   `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	FD      value.Integer `json:"fd" col:"FD,width=4,right" help:"file descriptor of the file system context (fsconfig, fsmount)"`
	Source  value.Bytes   `json:"source" col:"SOURCE,width=20" help:"as given: source of mount, first path of move_mount and pivot_root, path of open_tree"`
	Target  value.Bytes   `json:"target" col:"TARGET,width=20" help:"as given: where mount, move_mount and pivot_root put it, what umount, fspick and mount_setattr change"`
	FS      value.Bytes   `json:"fs" col:"FS,width=10" help:"type of the file system (mount, fsopen)"`
	Flags   value.List    `json:"flags" col:"FLAGS,width=20" help:"names of the flags; bits without a name as a number"`
	Data    value.Bytes   `json:"data" col:"DATA,width=20" help:"options of the file system (mount), up to the first NUL byte; they can contain passwords"`
	Command string        `json:"command" col:"CMD,width=20" help:"command of fsconfig"`
	Key     value.Bytes   `json:"key" col:"KEY,width=10" help:"parameter of fsconfig"`
	Value   value.Bytes   `json:"value" col:"VALUE,width=10" help:"value of fsconfig, if it is a string or a path; of binary data the bytes up to the first NUL byte"`
	Attrs   value.List    `json:"attributes" col:"ATTR,width=20" help:"attributes that fsmount, mount_setattr or open_tree_attr sets"`
	Cleared value.List    `json:"attributes_cleared" col:"ATTR_CLEARED,width=20" help:"attributes that mount_setattr or open_tree_attr clears"`
	Spread  value.List    `json:"propagation" col:"PROPAGATION,width=12" help:"propagation that mount_setattr or open_tree_attr sets"`
	Call    value.Quoted  `json:"call" col:"CALL,width=40" help:"the call in the form of C, with its result; strings are constants of C, in which a quotation mark follows a backslash, and control characters and bytes that are not UTF-8 are octal numbers of three digits"`

	names *value.Syscalls
	calls map[string]*call
	text  []byte
}

// Decode reads the strings and computes the derived columns.
func (r *row) Decode(tail []byte) error {
	*r = row{event: r.event, names: r.names, calls: r.calls, text: r.text[:0]}
	r.Syscall = r.names.Name(value.ABI(r.ABI), r.NR)
	c := r.calls[r.Syscall]
	if c == nil {
		return fmt.Errorf("decode call: unknown call %s", r.Syscall)
	}
	r.Op, r.Error = c.op, value.Error(r.Ret)
	r.text = append(append(r.text, r.Syscall...), '(')
	for i, a := range c.args {
		var given []byte
		if n := int(r.Lens[i]); n > 0 && n <= len(tail) {
			given, tail = tail[:n-1], tail[n:]
		}
		if i > 0 {
			r.text = append(r.text, ", "...)
		}
		r.add(&a, r.Args[i], given)
	}
	r.text = strconv.AppendInt(append(r.text, ") = "...), int64(r.Ret), 10)
	if !r.Error.Absent() {
		r.text = append(append(r.text, ' '), r.Error.AppendText(nil)...)
	}
	r.Call = r.text
	return nil
}

// add appends an argument to the text of the call and sets its column.
func (r *row) add(a *arg, n uint64, given []byte) {
	switch a.kind {
	case text:
		r.addText(a.column, n, given)
	case descriptor:
		r.text = strconv.AppendInt(r.text, int64(int32(n)), 10)
		if a.column == "fd" {
			r.FD = value.IntOf(n)
		}
	case number:
		r.text = strconv.AppendUint(r.text, n, 10)
	case bits:
		list := appendNames(nil, uint64(uint32(n)), a.names)
		r.text = appendFlags(r.text, list)
		if a.column == "flags" {
			r.Flags = list
		} else {
			r.Attrs = list
		}
	case command:
		if r.Command = strconv.FormatUint(uint64(uint32(n)), 10); n < uint64(len(commands)) {
			r.Command = commands[n]
		}
		r.text = append(r.text, r.Command...)
	case attributes:
		r.addAttributes()
	}
}

func (r *row) addText(column string, n uint64, given []byte) {
	columns := map[string]*value.Bytes{"source": &r.Source, "target": &r.Target, "fs": &r.FS, "data": &r.Data, "key": &r.Key, "value": &r.Value}
	if column == "value" && r.Args[1] == setBinary {
		given = given[:min(uint64(len(given)), r.Args[4])]
	}
	switch *columns[column] = given; {
	case n == 0:
		r.text = append(r.text, "NULL"...)
	case given == nil:
		r.text = strconv.AppendUint(append(r.text, "0x"...), n, 16)
	default:
		r.text = value.AppendQuoted(r.text, given)
	}
}

func (r *row) addAttributes() {
	r.Attrs = appendNames(nil, r.Attr.Set, mountAttributes)
	r.Cleared = appendNames(nil, r.Attr.Cleared, mountAttributes)
	r.Spread = appendNames(nil, r.Attr.Propagation, mountFlags)
	r.text = appendFlags(append(r.text, "{attr_set="...), r.Attrs)
	r.text = appendFlags(append(r.text, ", attr_clr="...), r.Cleared)
	r.text = appendFlags(append(r.text, ", propagation="...), r.Spread)
	r.text = append(r.text, '}')
}

// appendFlags appends the names in the form of C.
func appendFlags(b []byte, list value.List) []byte {
	if len(list) == 0 {
		return append(b, '0')
	}
	return append(b, bytes.ReplaceAll(list[:len(list)-1], []byte{0}, []byte("|"))...)
}

// Tool is the definition of mountsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "mountsnoop",
	Category: "file",
	Summary:  "Trace mount and umount system calls, including fsopen, fsconfig, fsmount and move_mount",
	Description: `Shows each system call that changes the mounts of a mount namespace, or prepares a change, when it returns: mount, umount (umount2), pivot_root, fsopen, fsconfig, fsmount, fspick, move_mount, open_tree, open_tree_attr and mount_setattr, of 64-bit and 32-bit tasks. Current versions of mount(8) use fsopen and move_mount instead of mount.

Calls are traced at raw_syscalls:sys_enter, where only the time is taken, and raw_syscalls:sys_exit. Strings are read when the call returns. Mounts that the kernel makes itself, such as automounts, and unmounts at the end of a mount namespace are no system calls and are not shown.

MNT_NS is the mount namespace of the calling task, not the one that a file descriptor of another namespace leads to.`,
	Peers: []string{
		"-d shows the fields of the detailed output of libbpf-tools as columns of one line.",
		"fspick, open_tree, open_tree_attr, mount_setattr, pivot_root and calls of 32-bit tasks are traced; the peers miss them. BCC also misses fsopen, fsconfig, fsmount and move_mount.",
		"CALL ends with the number and the name of the error; paths are not cut (BCC: after 64 bytes).",
	},
	Examples: []string{
		"mountsnoop                      # all calls",
		"mountsnoop -d -t                # with time, latency and arguments in columns",
		"mountsnoop -P --columns +container  # with the parent process and the container",
		"mountsnoop --filter 'ret < 0'   # failed calls",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	names, all, kinds := value.NewSyscalls(), calls(), map[string]uint8{}
	for name, c := range all {
		kinds[name] = c.bits()
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: map[string]any{"targ_calls": value.CallKinds(names, kinds)}},
		Columns:     columns(o),
		BufferBytes: 4 << 20,
		Row:         row{names: names, calls: all},
	}, nil
}

func columns(o *options) []string {
	var columns []string
	if o.Timestamp {
		columns = append(columns, "time")
	}
	columns = append(columns, "comm", "pid", "tid")
	if o.Parent {
		columns = append(columns, "parent_comm", "ppid")
	}
	columns = append(columns, "mntns")
	if o.Detailed {
		return append(columns, "operation", "ret", "latency_ns", "fs", "source", "target", "data", "flags", "command", "key", "value")
	}
	return append(columns, "call")
}
