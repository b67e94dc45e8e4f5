// Package vfsstat counts calls of the virtual file system.
package vfsstat

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh vfsstat.bpf.c

type options struct{ tool.Rounds }

// counts is struct totals.
type counts struct {
	Reads   uint64 `json:"reads" col:"READS,width=8,right" help:"calls of vfs_read; by system calls: read and pread64 of an open file"`
	Writes  uint64 `json:"writes" col:"WRITES,width=8,right" help:"calls of vfs_write; by system calls: write and pwrite64"`
	Fsyncs  uint64 `json:"fsyncs" col:"FSYNCS,width=8,right" help:"system calls fsync and fdatasync of an open file"`
	Opens   uint64 `json:"opens" col:"OPENS,width=8,right" help:"calls of vfs_open; by system calls: open, creat, openat and openat2 that succeed"`
	Creates uint64 `json:"creates" col:"CREATES,width=8,right" help:"of these opens, those that made the file, and calls of vfs_create, which are of mknod and of file servers; by system calls the first alone"`
	Unlinks uint64 `json:"unlinks" col:"UNLINKS,width=8,right" help:"calls of vfs_unlink; by system calls: unlink and unlinkat that succeed"`
	Mkdirs  uint64 `json:"mkdirs" col:"MKDIRS,width=8,right" help:"calls of vfs_mkdir; by system calls: mkdir and mkdirat that succeed"`
	Rmdirs  uint64 `json:"rmdirs" col:"RMDIRS,width=8,right" help:"calls of vfs_rmdir; by system calls: rmdir and unlinkat of directories that succeed"`
}

type row struct {
	counts
	ReadRate   value.Rate `json:"reads_per_s" col:"READ/s,width=8,right,extra" help:"reads a second"`
	WriteRate  value.Rate `json:"writes_per_s" col:"WRITE/s,width=8,right,extra" help:"writes a second"`
	FsyncRate  value.Rate `json:"fsyncs_per_s" col:"FSYNC/s,width=8,right,extra" help:"fsyncs a second"`
	OpenRate   value.Rate `json:"opens_per_s" col:"OPEN/s,width=8,right,extra" help:"opens a second"`
	CreateRate value.Rate `json:"creates_per_s" col:"CREATE/s,width=8,right,extra" help:"creates a second"`
	UnlinkRate value.Rate `json:"unlinks_per_s" col:"UNLINK/s,width=8,right,extra" help:"unlinks a second"`
	MkdirRate  value.Rate `json:"mkdirs_per_s" col:"MKDIR/s,width=8,right,extra" help:"mkdirs a second"`
	RmdirRate  value.Rate `json:"rmdirs_per_s" col:"RMDIR/s,width=8,right,extra" help:"rmdirs a second"`
}

// Tool is vfsstat.
var Tool = tool.Define(tool.Spec{
	Name:     "vfsstat",
	Category: "file",
	Summary:  "Count reads, writes, opens and other calls of the virtual file system",
	Description: `Counts the calls of the kernel's functions vfs_read, vfs_write, vfs_open, vfs_create, vfs_unlink, vfs_mkdir and vfs_rmdir, and the system calls fsync and fdatasync, each second.

Where these can neither be traced by trampolines nor probed, the system calls that come to them are counted, as they return (the ways syscalls and sysraw to the hook; the line "ready" says which way was taken). That is nearly the same for what processes do, but leaves out the kernel's own reads and writes, those of file servers and of io_uring.

readv, preadv, writev and pwritev do not come to vfs_read and vfs_write and are not counted, nor is mapped memory. File systems that look up and open at once (NFS, FUSE) may not come to vfs_open. Sockets and pipes are read and written here too.

The table shows calls a second; JSON and CSV have how many they were.`,
	Peers: []string{
		"CREATE/s has the files that opens make. For libbpf-tools and BCC it is the calls of vfs_create, which open(2) has not come to since kernel 3.6.",
		"FSYNC/s is of the system calls. libbpf-tools and BCC count vfs_fsync, which fsync(2) does not come to where the compiler has inlined it, as in Debian's 6.1.",
		"-p (BCC) is --pid, and there are the other task filters.",
		"It works without kprobes and trampolines, by system calls.",
	},
	Examples: []string{
		"vfsstat           # a line each second",
		"vfsstat 5 3       # three lines, of five seconds each",
		"vfsstat -p 1234   # one process",
		"vfsstat --output json --columns all  # counts and rates",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{tool.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &tool.Table[struct{}, counts, row]{
		Rounds: o.Rounds,
		Columns: []string{
			"time", "reads_per_s", "writes_per_s", "fsyncs_per_s", "opens_per_s", "creates_per_s", "unlinks_per_s", "mkdirs_per_s",
			"rmdirs_per_s",
		},
		Fill: fill,
	}, nil
}

func fill(r *row, c *counts, span time.Duration) {
	r.counts = *c
	for _, rate := range []struct {
		of *value.Rate
		n  uint64
	}{
		{&r.ReadRate, c.Reads}, {&r.WriteRate, c.Writes}, {&r.FsyncRate, c.Fsyncs}, {&r.OpenRate, c.Opens},
		{&r.CreateRate, c.Creates}, {&r.UnlinkRate, c.Unlinks}, {&r.MkdirRate, c.Mkdirs}, {&r.RmdirRate, c.Rmdirs},
	} {
		*rate.of = value.NewRate(rate.n, int64(span))
	}
}
