// Package vfsstat counts system calls of file systems.
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
	Reads   uint64 `json:"reads" col:"READS,width=8,right" help:"system calls that read an open file: read, pread64, readv, preadv, preadv2, sendfile, splice, copy_file_range"`
	Writes  uint64 `json:"writes" col:"WRITES,width=8,right" help:"system calls that write to one: write, pwrite64, writev, pwritev, pwritev2, sendfile, splice, copy_file_range"`
	Fsyncs  uint64 `json:"fsyncs" col:"FSYNCS,width=8,right" help:"fsync and fdatasync of an open file"`
	Opens   uint64 `json:"opens" col:"OPENS,width=8,right" help:"open, creat, openat and openat2 that succeed"`
	Creates uint64 `json:"creates" col:"CREATES,width=8,right" help:"of these, those that made the file"`
	Unlinks uint64 `json:"unlinks" col:"UNLINKS,width=8,right" help:"unlink and unlinkat that succeed"`
	Mkdirs  uint64 `json:"mkdirs" col:"MKDIRS,width=8,right" help:"mkdir and mkdirat that succeed"`
	Rmdirs  uint64 `json:"rmdirs" col:"RMDIRS,width=8,right" help:"rmdir and unlinkat of directories that succeed"`
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
	Summary:  "Count reads, writes, opens and other calls of file systems",
	Description: `Counts the system calls that read, write, sync, open, make and remove files and directories, each second, as they return (raw_syscalls:sys_exit), of 64-bit and of 32-bit tasks.

Reads, writes and fsyncs count if they are given an open file, which may be a socket or a pipe; the others if they succeed, as only then did they come to the file system.

The kernel's functions vfs_read, vfs_open and so on are not what is counted: compilers inline some of them, another one in each kernel, and then nothing comes to them. What is not seen for that are reads and writes of the kernel's own, of file servers and of io_uring.

The table shows calls a second; JSON and CSV have how many they were.`,
	Peers: []string{
		"System calls are counted and not functions. libbpf-tools and BCC trace vfs_fsync, vfs_rmdir and others, and show 0 for those that are inlined: FSYNC/s on Debian's 6.1, RMDIR/s on its 5.10.",
		"readv, writev, their variants, sendfile, splice and copy_file_range are reads and writes; they do not come to vfs_read and vfs_write.",
		"CREATE/s has the files that opens make. For libbpf-tools and BCC it is the calls of vfs_create, which open(2) has not come to since kernel 3.6.",
		"-p (BCC) is --pid, and there are the other task filters. It works without kprobes and trampolines.",
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
