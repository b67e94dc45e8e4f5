// Package filetop shows the most read and written files.
package filetop

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh filetop.bpf.c

type options struct {
	source.Top
	All       bool   `flag:"all,a" also:"all-files" bpf:"targ_all" help:"include files that are not regular: sockets, pipes, devices"`
	ReadOnly  bool   `flag:"read-only" help:"count only reads"`
	WriteOnly bool   `flag:"write-only" help:"count only writes"`
	Directory string `flag:"directory,d" arg:"PATH" help:"only files below this directory, in the same file system"`
}

// key mirrors struct table_key.
type key struct {
	Inode, Instance, CgroupID uint64
	Dev, Mode, PID, TID       uint32
}

// counts mirrors struct table_value.
type counts struct {
	Reads, Writes, ReadBytes, WriteBytes uint64
	SinceNs                              source.Since
	UID                                  uint32
	Comm                                 value.Comm
	Name                                 [256]byte
	_                                    uint32
}

type row struct {
	TID        uint32       `json:"tid" col:"TID,width=7" help:"thread that read or wrote, in the initial PID namespace"`
	PID        uint32       `json:"pid" col:"PID,width=7" help:"process of this thread"`
	UID        uint32       `json:"uid" col:"UID,width=6" help:"real user ID of this process, in the initial user namespace"`
	Comm       value.Name   `json:"comm" col:"COMM,width=16" help:"name of the thread at the first call"`
	Reads      uint64       `json:"reads" col:"READS,width=6,right" help:"successful system calls that read from the file"`
	Writes     uint64       `json:"writes" col:"WRITES,width=6,right" help:"successful system calls that wrote to the file"`
	ReadBytes  value.Size   `json:"read_bytes" col:"R_Kb,width=10,right" help:"bytes read by these calls; text shows units of 1,024"`
	WriteBytes value.Size   `json:"write_bytes" col:"W_Kb,width=10,right" help:"bytes written by these calls; text shows units of 1,024"`
	Bytes      value.Size   `json:"total_bytes" col:"TOTAL_Kb,width=10,right,extra" help:"sum of bytes read and written; text shows units of 1,024"`
	Type       string       `json:"type_of_file" col:"T,width=1" help:"R for a regular file, S for a socket, O for any other"`
	File       value.Name   `json:"file" col:"FILE,width=32" help:"name of the file at the first of these calls, without directories; absent for files without a name, such as pipes"`
	Inode      uint64       `json:"inode" col:"INODE,width=10,right" help:"inode number of the file"`
	Generation value.Count  `json:"generation" col:"GENERATION,width=10,right" help:"generation of the inode (FS_IOC_GETVERSION), which differs between files that use the same inode number one after another; absent if the file system has none"`
	Device     value.Device `json:"device" col:"DEVICE,width=7" help:"device number as in stat(2), major:minor; for overlayfs the number of the overlay file system"`
	CgroupID   uint64       `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the thread's cgroup: inode number of its directory"`

	instance uint64 // key.Instance, which replaces a missing generation
}

// Tool is the definition of filetop.
var Tool = tool.Define(tool.Spec{
	Name:     "filetop",
	Category: "file",
	Summary:  "Files with the most reads and writes (file I/O), as a top-like table",
	Description: `Counts reads and writes per interval (one second by default) by thread and file, and shows the rows with the most bytes first. Without --all, only regular files are included.

A read or write is a successful system call, counted when it returns (raw_syscalls:sys_exit) with the bytes that it transferred: read, pread64, readv, preadv, preadv2 and the corresponding write calls; sendfile, splice and copy_file_range read one file and write another. The data need not reach a disk.

Each row is one file, also if it has several names or is renamed; the name at the first call is shown. Files that use the same inode number one after another are distinguished by the inode generation. On file systems without generations (FUSE, network file systems, files copied up by overlayfs), the address of the inode in memory is used instead: a file that is evicted and read again within an interval has two rows, and two files with the same number and address can share a row.

Reads and writes of mapped memory, by io_uring, and by the kernel itself (such as a file server or a loop device) are not traced. A call whose file descriptor another thread closes during the call is not in the table, but is counted in the summary (closed). So are calls on files with --directory that is not among the nearest 64 directories above the file (too_deep).`,
	Peers: []string{
		"Bytes are those transferred. libbpf-tools and BCC count the requested size, so a program with a large buffer seems to read more than the file contains.",
		"readv, writev, their variants, sendfile, splice and copy_file_range are counted; libbpf-tools and BCC count calls of vfs_read and vfs_write.",
		"--sort all sorts by the sum of bytes, which is close to the peers' sum of counts and bytes.",
		"--directory includes all files below the directory; BCC only those directly in it.",
		"JSON and CSV have all rows; --rows (20 in text) limits them too if given.",
	},
	Examples: []string{
		"filetop                    # a screen of the busiest files, each second",
		"filetop -C 5 3             # three tables of five seconds each",
		"filetop -s writes -r 10    # by writes, ten rows",
		"filetop -d /var/lib --write-only --columns +container  # writes below /var/lib, with the container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: source.TopBy("all")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if o.ReadOnly && o.WriteOnly {
		return nil, fmt.Errorf("--read-only and --write-only cannot be combined")
	}
	plan := tool.Plan{Variables: map[string]any{"targ_reads": !o.WriteOnly, "targ_writes": !o.ReadOnly}}
	if o.Directory != "" {
		id, err := env.DirectoryID(o.Directory)
		if err != nil {
			return nil, fmt.Errorf("--directory: %w", err)
		}
		plan.Variables["targ_nr_dirs"], plan.Variables["targ_dir_inodes"] = uint32(1), id.Inode
		plan.Variables["targ_dir_mount_devs"], plan.Variables["targ_dir_devs"] = id.MountDev, id.Dev
	}
	return &source.Table[key, counts, row]{
		Plan: plan, Top: &o.Top,
		Columns:   []string{"tid", "comm", "reads", "writes", "read_bytes", "write_bytes", "type_of_file", "file"},
		SortNames: map[string]string{"all": "total_bytes", "rbytes": "read_bytes", "wbytes": "write_bytes"},
		Label:     label, Fill: fill,
	}, nil
}

// types maps file types to their letters; all others are O.
var types = map[uint32]string{unix.S_IFREG: "R", unix.S_IFSOCK: "S"}

func label(k *key, c *counts) row {
	r := row{
		TID: k.TID, PID: k.PID, UID: c.UID, Comm: value.NameOf(c.Comm[:]), Type: cmp.Or(types[k.Mode], "O"), File: value.NameOf(c.Name[:]),
		Inode: k.Inode, Device: value.Device(k.Dev), CgroupID: k.CgroupID,
	}
	if k.Instance <= math.MaxUint32 {
		r.Generation = value.Count{N: k.Instance, Given: true}
	} else {
		r.instance = k.Instance // a kernel address: not shown
	}
	return r
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Reads, r.Writes = c.Reads, c.Writes
	r.ReadBytes, r.WriteBytes = value.Size(c.ReadBytes), value.Size(c.WriteBytes)
	r.Bytes = r.ReadBytes + r.WriteBytes
}
