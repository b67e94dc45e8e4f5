// Package dirtop shows the most read and written directories.
package dirtop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh dirtop.bpf.c

type options struct {
	source.Top
	Directories []string `flag:"root-directories,d" arg:"PATH" help:"count the files below each of these directories, in the same file system; patterns such as /home/* stand for all directories that match, and not for files that match"`
}

// maxDirectories is BELOW_MAX in dirtop.bpf.c.
const maxDirectories = 32

// key mirrors struct table_key.
type key struct{ Dir uint32 }

// counts mirrors struct table_value.
type counts struct{ Reads, Writes, ReadBytes, WriteBytes uint64 }

type row struct {
	Reads      uint64     `json:"reads" col:"READS,width=6,right" help:"successful system calls that read from regular files below the directory"`
	Writes     uint64     `json:"writes" col:"WRITES,width=6,right" help:"successful system calls that wrote to these files"`
	ReadBytes  value.Size `json:"read_bytes" col:"R_Kb,width=10,right" help:"bytes read by these calls; text shows units of 1,024"`
	WriteBytes value.Size `json:"write_bytes" col:"W_Kb,width=10,right" help:"bytes written by these calls; text shows units of 1,024"`
	Bytes      value.Size `json:"total_bytes" col:"TOTAL_Kb,width=10,right,extra" help:"sum of bytes read and written; text shows units of 1,024"`
	Path       value.Name `json:"path" col:"PATH,width=32" help:"the directory, as given or found by a pattern"`
}

// Tool is the definition of dirtop.
var Tool = tool.Define(tool.Spec{
	Name:     "dirtop",
	Category: "file",
	Summary:  "Directories with the most reads and writes (file I/O), as a top-like table",
	Description: `Counts reads and writes of regular files per interval (one second by default) by directory, including all files below it, and shows the directories with the most bytes first. The directories are selected with -d; one without reads and writes in an interval has no row.

A read or write is a successful system call, counted when it returns (raw_syscalls:sys_exit) with the bytes that it transferred: read, pread64, readv, preadv, preadv2 and the corresponding write calls; sendfile, splice and copy_file_range read one file and write another. The data need not reach a disk.

A file below several of the directories counts for the innermost one. Directories are identified by inode, so a file counts whatever path leads to the directory: a bind mount, a symbolic link, or another mount namespace. A file with several hard links counts for the directory of the link that it was opened by; a file that was moved since, for the directory in which it is now; a deleted file, for the directory in which it was. Other file systems that are mounted below a directory do not belong to it. At most 64 levels of directories are searched, upwards from the file. A directory that is given twice is shown by its first name.

Calls that no row contains are counted in the summary: elsewhere for regular files below none of the directories, and too_deep for those below none of the nearest 64 directories.

Reads and writes of mapped memory, by io_uring, and by the kernel itself (such as a file server or a loop device) are not traced. A call whose file descriptor another thread closes during the call is not in the table, but is counted in the summary (closed).`,
	Peers: []string{
		"Bytes are those transferred. BCC counts the requested size.",
		"readv, writev, their variants, sendfile, splice and copy_file_range are counted; BCC counts calls of vfs_read and vfs_write.",
		"Directories are identified by inode and device. BCC compares only inode numbers, which can be the same in different file systems.",
		"--sort all sorts by the sum of bytes, which is close to the sum of counts and bytes in BCC.",
	},
	Examples: []string{
		"dirtop -d /var/lib,/home          # two directories, each second",
		"dirtop -d '/home/*' -s writes 5 3 # the directories of all users by writes, three tables of five seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Top: source.TopBy("all")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	var dirs []string
	resolve := func(p *tool.Plan, _ *tool.Kernel) (err error) {
		if dirs, err = expand(o.Directories); err == nil {
			p.Variables, err = variables(dirs, env)
		}
		return err
	}
	return &source.Table[key, counts, row]{
		Plan: tool.Plan{Resolve: resolve}, Top: &o.Top,
		Columns:   []string{"reads", "writes", "read_bytes", "write_bytes", "path"},
		SortNames: map[string]string{"all": "total_bytes", "rbytes": "read_bytes", "wbytes": "write_bytes"},
		Label:     func(k *key, _ *counts) row { return row{Path: value.Name(dirs[k.Dir])} },
		Fill:      fill,
	}, nil
}

// expand replaces patterns by the directories that match.
func expand(paths []string) ([]string, error) {
	var dirs []string
	for _, path := range paths {
		found, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("%w: --root-directories %s: %w", flags.ErrUsage, path, err)
		}
		// A path that is no pattern and no directory is reported by variables.
		if len(found) != 1 || found[0] != path {
			found = slices.DeleteFunc(found, func(path string) bool { return !isDirectory(path) })
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%w: --root-directories %s: no such directory", flags.ErrUsage, path)
		}
		dirs = append(dirs, found...)
	}
	if n := len(dirs); n == 0 || n > maxDirectories {
		return nil, fmt.Errorf("%w: --root-directories: %d directories, want 1 to %d", flags.ErrUsage, n, maxDirectories)
	}
	return dirs, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// variables identifies the directories for the BPF program.
func variables(dirs []string, env *tool.Env) (map[string]any, error) {
	var inodes [maxDirectories]uint64
	var mountDevs, devs [maxDirectories]uint32
	for i, dir := range dirs {
		id, err := env.DirectoryID(dir)
		if err != nil {
			return nil, fmt.Errorf("%w: --root-directories: %w", flags.ErrUsage, err)
		}
		inodes[i], mountDevs[i], devs[i] = id.Inode, id.MountDev, id.Dev
	}
	return map[string]any{
		"targ_nr_dirs": uint32(len(dirs)), "targ_dir_inodes": inodes, "targ_dir_mount_devs": mountDevs, "targ_dir_devs": devs,
	}, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Reads, r.Writes = c.Reads, c.Writes
	r.ReadBytes, r.WriteBytes = value.Size(c.ReadBytes), value.Size(c.WriteBytes)
	r.Bytes = r.ReadBytes + r.WriteBytes
}
