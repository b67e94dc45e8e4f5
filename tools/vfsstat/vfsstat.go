// Package vfsstat counts file system calls.
package vfsstat

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh vfsstat.bpf.c

type options struct{ source.Rounds }

// counts mirrors struct totals.
type counts struct {
	Reads   uint64 `json:"reads" col:"READS,width=8,right" help:"system calls that read from an open file: read, pread64, readv, preadv, preadv2, sendfile, splice, copy_file_range"`
	Writes  uint64 `json:"writes" col:"WRITES,width=8,right" help:"system calls that write to an open file: write, pwrite64, writev, pwritev, pwritev2, sendfile, splice, copy_file_range"`
	Fsyncs  uint64 `json:"fsyncs" col:"FSYNCS,width=8,right" help:"fsync and fdatasync of an open file"`
	Opens   uint64 `json:"opens" col:"OPENS,width=8,right" help:"successful open, creat, openat and openat2"`
	Creates uint64 `json:"creates" col:"CREATES,width=8,right" help:"those that created the file"`
	Unlinks uint64 `json:"unlinks" col:"UNLINKS,width=8,right" help:"successful unlink and unlinkat"`
	Mkdirs  uint64 `json:"mkdirs" col:"MKDIRS,width=8,right" help:"successful mkdir and mkdirat"`
	Rmdirs  uint64 `json:"rmdirs" col:"RMDIRS,width=8,right" help:"successful rmdir, and unlinkat of directories"`
}

type row struct {
	counts
	ReadRate   value.Rate `json:"reads_per_s" col:"READ/s,width=8,right,extra" help:"reads per second"`
	WriteRate  value.Rate `json:"writes_per_s" col:"WRITE/s,width=8,right,extra" help:"writes per second"`
	FsyncRate  value.Rate `json:"fsyncs_per_s" col:"FSYNC/s,width=8,right,extra" help:"fsyncs per second"`
	OpenRate   value.Rate `json:"opens_per_s" col:"OPEN/s,width=8,right,extra" help:"opens per second"`
	CreateRate value.Rate `json:"creates_per_s" col:"CREATE/s,width=8,right,extra" help:"creates per second"`
	UnlinkRate value.Rate `json:"unlinks_per_s" col:"UNLINK/s,width=8,right,extra" help:"unlinks per second"`
	MkdirRate  value.Rate `json:"mkdirs_per_s" col:"MKDIR/s,width=8,right,extra" help:"mkdirs per second"`
	RmdirRate  value.Rate `json:"rmdirs_per_s" col:"RMDIR/s,width=8,right,extra" help:"rmdirs per second"`
}

// Tool is the definition of vfsstat.
var Tool = tool.Define(tool.Spec{
	Name:     "vfsstat",
	Category: "file",
	Summary:  "Count file system (VFS) calls: reads, writes, opens, fsyncs, unlinks",
	Description: `Counts the system calls that read, write, sync, open, create and remove files and directories per interval (one second by default), when they return (raw_syscalls:sys_exit), of 64-bit and 32-bit tasks.

Reads, writes and fsyncs count if their descriptor is open, including sockets and pipes; the other calls count if they succeed, because only then did they reach the file system.

System calls are counted instead of the kernel functions vfs_read, vfs_open and so on, because compilers inline some of these, different ones in each kernel build, and inlined calls cannot be traced. Therefore reads and writes by the kernel itself, by file servers and by io_uring are not included.

Text shows calls per second; JSON and CSV have the number of calls.`,
	Peers: []string{
		"System calls are counted instead of functions. libbpf-tools and BCC trace vfs_fsync, vfs_rmdir and others, and show 0 for those that are inlined: FSYNC/s on Debian's 6.1, RMDIR/s on its 5.10.",
		"readv, writev, their variants, sendfile, splice and copy_file_range count as reads and writes; they do not call vfs_read and vfs_write.",
		"CREATE/s counts files created by opens. In libbpf-tools and BCC it counts calls of vfs_create, which open(2) has not used since kernel 3.6.",
		"-p (BCC) is --pid; the other task filters are supported too. Neither kprobes nor fentry are needed.",
	},
	Examples: []string{
		"vfsstat           # a line each second",
		"vfsstat 5 3       # three lines of five seconds each",
		"vfsstat -p 1234   # one process",
		"vfsstat --output json --columns all  # counts and rates",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{source.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[struct{}, counts, row]{
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
