// Package filetop shows the files that are read and written most.
package filetop

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh filetop.bpf.c

type options struct {
	tool.Top
	All       bool   `flag:"all,a" also:"all-files" bpf:"targ_all" help:"files that are not regular too: sockets, pipes, devices"`
	ReadOnly  bool   `flag:"read-only" help:"count reads only"`
	WriteOnly bool   `flag:"write-only" help:"count writes only"`
	Directory string `flag:"directory,d" arg:"PATH" help:"only files below this directory, in the same file system"`
}

// key is struct table_key.
type key struct {
	Inode, CgroupID     uint64
	Dev, Mode, PID, TID uint32
}

// counts is struct table_value.
type counts struct {
	Reads, Writes, ReadBytes, WriteBytes uint64
	UID                                  uint32
	Comm                                 value.Comm
	Name                                 [256]byte
	_                                    uint32
}

type row struct {
	TID        uint32       `json:"tid" col:"TID,width=7" help:"thread that read or wrote, in the initial PID namespace"`
	PID        uint32       `json:"pid" col:"PID,width=7" help:"its process"`
	UID        uint32       `json:"uid" col:"UID,width=6" help:"its real user id, in the initial user namespace"`
	Comm       value.Name   `json:"comm" col:"COMM,width=16" help:"name of the thread at the first of the calls"`
	Reads      uint64       `json:"reads" col:"READS,width=6,right" help:"system calls that read from the file and succeeded"`
	Writes     uint64       `json:"writes" col:"WRITES,width=6,right" help:"system calls that wrote to it and succeeded"`
	ReadBytes  value.Size   `json:"read_bytes" col:"R_Kb,width=10,right" help:"bytes that they read; text shows units of 1,024"`
	WriteBytes value.Size   `json:"write_bytes" col:"W_Kb,width=10,right" help:"bytes that they wrote; text shows units of 1,024"`
	Bytes      value.Size   `json:"total_bytes" col:"TOTAL_Kb,width=10,right,extra" help:"both"`
	Type       string       `json:"type_of_file" col:"T,width=1" help:"R for a regular file, S for a socket, O for any other"`
	File       value.Name   `json:"file" col:"FILE,width=32" help:"name of the file at the first of the calls, without its directories; absent where it has none, as a pipe"`
	Inode      uint64       `json:"inode" col:"INODE,width=10,right" help:"its inode number"`
	Device     value.Device `json:"device" col:"DEVICE,width=7" help:"device of its file system, MAJOR:MINOR"`
	CgroupID   uint64       `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"id of the thread's cgroup: inode of its directory"`
}

// Tool is filetop.
var Tool = tool.Define(tool.Spec{
	Name:     "filetop",
	Category: "file",
	Summary:  "Show the files that are read and written most",
	Description: `Counts reads and writes by thread and file, each second, those with the most bytes first. Without --all only of regular files.

A read or write is a system call that succeeds, seen as it returns (raw_syscalls:sys_exit) with the bytes that it moved: read, pread64, readv, preadv, preadv2 and those of write; sendfile, splice and copy_file_range, which read one file and write another. It need not reach a disk.

What is read or written by mapped memory, by io_uring, or in the kernel itself (a file server, a loop device), is not seen. A call whose descriptor another thread has closed meanwhile is not in the table, but in the summary (closed).`,
	Peers: []string{
		"Bytes are those that were moved. libbpf-tools and BCC count what was asked for, so a program with a large buffer seems to read more than the file has.",
		"readv, writev, their variants, sendfile, splice and copy_file_range are counted; libbpf-tools and BCC count what calls vfs_read and vfs_write.",
		"--sort all is by the sum of the bytes, as the peers' sum of counts and bytes is near to that.",
		"--directory is of all files below it; BCC's is of those right in it.",
		"JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
	},
	Examples: []string{
		"filetop                    # a screen of the busiest files, each second",
		"filetop -C 5 3             # three tables of five seconds each",
		"filetop -s writes -r 10    # by writes, ten rows",
		"filetop -d /var/lib --write-only --columns +container  # who writes below /var/lib",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: tool.TopBy("all")}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.ReadOnly && o.WriteOnly {
		return nil, fmt.Errorf("--read-only and --write-only do not go together")
	}
	plan := tool.Plan{Variables: map[string]any{"targ_reads": !o.WriteOnly, "targ_writes": !o.ReadOnly}}
	if o.Directory != "" {
		dev, inode, err := system.DirectoryID(o.Directory)
		if err != nil {
			return nil, fmt.Errorf("--directory: %w", err)
		}
		plan.Variables["targ_dir_dev"], plan.Variables["targ_dir_inode"] = dev, inode
	}
	return &tool.Table[key, counts, row]{
		Plan: plan, Top: &o.Top,
		Columns:   []string{"tid", "comm", "reads", "writes", "read_bytes", "write_bytes", "type_of_file", "file"},
		SortNames: map[string]string{"all": "total_bytes", "rbytes": "read_bytes", "wbytes": "write_bytes"},
		Label:     label, Fill: fill,
	}, nil
}

// types are the letters of those that have one of their own.
var types = map[uint32]string{unix.S_IFREG: "R", unix.S_IFSOCK: "S"}

func label(k *key, c *counts) row {
	return row{
		TID: k.TID, PID: k.PID, UID: c.UID, Comm: value.NameOf(c.Comm[:]), Type: cmp.Or(types[k.Mode], "O"), File: value.NameOf(c.Name[:]),
		Inode: k.Inode, Device: value.Device(k.Dev), CgroupID: k.CgroupID,
	}
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Reads, r.Writes = c.Reads, c.Writes
	r.ReadBytes, r.WriteBytes = value.Size(c.ReadBytes), value.Size(c.WriteBytes)
	r.Bytes = r.ReadBytes + r.WriteBytes
}
