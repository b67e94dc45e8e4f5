// Package maps lists the memory mappings of processes.
package maps

import (
	"os"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh maps.bpf.c -type kind

type options struct {
	Exec bool `flag:"exec,x" bpf:"targ_exec" help:"only executable mappings"`
	WX   bool `flag:"writable-exec,w" bpf:"targ_wx" help:"only mappings that are both writable and executable"`
}

type event struct {
	value.Task
	Start       value.Address `json:"start" col:"START,width=14" help:"first address, in hexadecimal"`
	End         value.Address `json:"end" col:"END,width=14" help:"address after the last byte, in hexadecimal"`
	OffsetPages uint64
	VMFlags     uint64 `btf:"flags"`
	KindNr      uint32 `btf:"kind"`
	_           uint32
	value.File
}

type row struct {
	event
	Size   value.Size  `json:"size_bytes" col:"SIZE_KB,width=12,right" help:"size of the address range, part of which may not be resident; text shows units of 1,024"`
	Perms  string      `json:"perms" col:"PERM,width=4" help:"permissions r, w and x, and s (shared) or p (private), as in /proc/PID/maps"`
	Offset uint64      `json:"offset" col:"OFFSET,width=10,right" help:"offset in the file, in bytes"`
	Kind   string      `json:"kind" col:"KIND,width=7" help:"file; heap and stack for the initial heap and stack of the process; special for mappings of the kernel; named and anon for other anonymous mappings with and without a name"`
	Path   value.Bytes `json:"path" col:"PATH,width=40" help:"path of a file, as in files(8); otherwise the name in /proc/PID/maps: [heap], [stack], [vdso], [anon:NAME]; absent without a name"`

	page uint64
	path []byte
}

// kinds are the names of enum kind.
var kinds = [...]string{
	bpfKindKIND_ANON: "anon", bpfKindKIND_FILE: "file", bpfKindKIND_HEAP: "heap", bpfKindKIND_STACK: "stack",
	bpfKindKIND_NAMED: "named", bpfKindKIND_SPECIAL: "special",
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) error {
	file, err := r.File.AppendPath(r.path[:0], tail)
	if err != nil {
		return err
	}
	r.path = file
	r.Size = value.Size(r.End - r.Start)
	r.Offset = r.OffsetPages * r.page
	r.Perms = perms(r.VMFlags)
	r.Kind = kinds[r.KindNr%uint32(len(kinds))]
	switch r.Kind {
	case "file":
		r.Path = file
	case "heap", "stack":
		r.Path = []byte("[" + r.Kind + "]")
	case "named":
		r.Path = []byte("[anon:" + name(tail) + "]")
	case "special":
		r.Path = []byte(name(tail))
	default:
		r.Path = nil
	}
	return nil
}

func name(tail []byte) string { return strings.TrimRight(string(tail), "\x00") }

func perms(flags uint64) string {
	const read, write, exec, mayShare = 1, 2, 4, 0x80
	p := []byte("---p")
	for i, bit := range []uint64{read, write, exec} {
		if flags&bit != 0 {
			p[i] = "rwx"[i]
		}
	}
	if flags&mayShare != 0 {
		p[3] = 's'
	}
	return string(p)
}

// Tool is the definition of maps.
var Tool = tool.Define(tool.Spec{
	Name:     "maps",
	Category: "process",
	Summary:  "List memory mappings of processes (like /proc/PID/maps)",
	Description: `Lists the memory mappings of processes with their files: the contents of /proc/PID/maps for all processes at once. Mapped files keep their file system busy even without a file descriptor.

The address space of a process is locked against changes while a part of its mappings is read. With a single --pid, from kernel 6.1 on, no other process is locked. Kernels before 5.12 do not support this: use /proc/PID/maps there.

For a file in a btrfs subvolume, the device is that of the subvolume, as in stat(2), so that device and inode number identify the file; /proc/PID/maps shows the device of the whole file system. If the kernel has no BTF of btrfs (before 5.11, if btrfs is a module), the latter is shown here too.

On x86-64, /proc/PID/maps also contains [vsyscall], which belongs to the kernel and is not listed here. Only processes in the PID namespace of corescope are listed.`,
	Peers: []string{
		"BCC and libbpf-tools have no tool of this name.",
	},
	Examples: []string{
		"maps -p 1234                     # mappings of one process",
		"maps -w                          # memory that is writable and executable",
		"maps -x --filter 'deleted'       # code whose file was replaced or removed",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(*options, *tool.Env) (tool.Source, error) {
	return &source.List[row]{
		Columns:   []string{"pid", "comm", "start", "size_bytes", "perms", "path"},
		Row:       row{page: uint64(os.Getpagesize())},
		Iterators: []tool.Iterator{{Program: "areas"}},
		ByProcess: []string{"areas"},
	}, nil
}
