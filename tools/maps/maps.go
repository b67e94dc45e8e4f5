// Package maps lists the memory areas of processes.
package maps

import (
	"os"
	"strings"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh maps.bpf.c

type options struct {
	Exec bool `flag:"exec,x" bpf:"targ_exec" help:"only what can be run"`
	WX   bool `flag:"writable-exec,w" bpf:"targ_wx" help:"only what can be written and run"`
}

type event struct {
	value.Task
	Start       value.Address `json:"start" col:"START,width=14" help:"first address, as a number in base 16"`
	End         value.Address `json:"end" col:"END,width=14" help:"first address behind it"`
	OffsetPages uint64
	VMFlags     uint64 `btf:"flags"`
	KindNr      uint32 `btf:"kind"`
	_           uint32
	value.File
}

type row struct {
	event
	Size   value.Size  `json:"size_bytes" col:"SIZE_KB,width=12,right" help:"bytes of address space, of which some need not be in memory; text shows units of 1,024"`
	Perms  string      `json:"perms" col:"PERM,width=4" help:"r, w and x for what may be done, and s for shared or p for private, as in /proc/PID/maps"`
	Offset uint64      `json:"offset" col:"OFFSET,width=10,right" help:"where in the file it begins, in bytes"`
	Kind   string      `json:"kind" col:"KIND,width=7" help:"file; heap and stack for those that a process begins with; special for the kernel's; named and anon for the others, which have a name of their process's or none"`
	Path   value.Bytes `json:"path" col:"PATH,width=40" help:"of a file its path, as in files(8); else what /proc/PID/maps calls it: [heap], [stack], [vdso], [anon:NAME]; absent where it has no name"`

	page uint64
	path []byte
}

// kinds are the names of enum kind.
var kinds = [...]string{"anon", "file", "heap", "stack", "named", "special"}

// Decode fills what follows from the event.
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

// Tool is maps.
var Tool = tool.Define(tool.Spec{
	Name:     "maps",
	Category: "process",
	Summary:  "List the memory areas of processes",
	Description: `Lists the areas of processes' address space, with the files that are mapped: what /proc/PID/maps has, for all processes at once. Files that are mapped keep their file system busy without a descriptor.

The memory of a process is locked against changes while some of its areas are looked at; with one --pid, from kernel 6.1 on, that of no other process is. Kernels before 5.12 have no such iterator: there /proc/PID/maps tells.

On x86 /proc/PID/maps also has [vsyscall], which is the kernel's, and none of the process's areas. Only processes of the PID namespace that corescope runs in are listed.`,
	Peers: []string{
		"There is no tool of this name in BCC or libbpf-tools.",
	},
	Examples: []string{
		"maps -p 1234                     # the areas of a process",
		"maps -w                          # memory that can be written and run",
		"maps -x --filter 'deleted'       # code whose file was replaced or removed",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(*options, *tool.Env) (tool.Source, error) {
	return &tool.List[row]{
		Columns:   []string{"pid", "comm", "start", "size_bytes", "perms", "path"},
		Row:       row{page: uint64(os.Getpagesize())},
		Iterators: []tool.Iterator{{Program: "areas"}},
		ByProcess: []string{"areas"},
	}, nil
}
