// Package filelife traces files that are created and deleted while it runs.
package filelife

import (
	"path"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh filelife.bpf.c

type options struct {
	FullPath bool `flag:"full-path,F" bpf:"want_full_path" help:"show absolute paths"`
}

type event struct {
	value.Task
	Age        value.Elapsed `json:"age_ns" col:"AGE(s),width=8,right" help:"time from the return of the open that created the file to the removal of its last name, CLOCK_BOOTTIME; text shows seconds" btf:"age_ns"`
	CreatorPID uint32        `json:"creator_pid" col:"CREATOR,width=7" help:"process that created the file, in the initial PID namespace"`
	Replaced   bool          `json:"replaced" col:"REPLACED,width=8" help:"whether another file was renamed to its name, instead of an unlink"`
	_          [3]uint8
	value.File
}

type row struct {
	event
	Name value.Bytes `json:"file" col:"FILE,width=20" help:"name that was removed last"`
	Path value.Bytes `json:"path" col:"PATH,width=40" help:"with -F: path of that name, absolute in the mount namespace in which the file was created; ... before a path that is too long or whose mount has been removed; absent without -F"`

	full bool
	path []byte
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) (err error) {
	r.path, err = r.AppendPath(r.path[:0], tail)
	r.Name, r.Path = []byte(path.Base(string(r.path))), nil
	if r.full {
		r.Path = r.path
	}
	return err
}

// Tool is the definition of filelife.
var Tool = tool.Define(tool.Spec{
	Name:     "filelife",
	Category: "file",
	Summary:  "Trace short-lived files: created and deleted while the tool runs, with their age",
	Description: `Shows each file that is created and deleted during the run, when its last name is removed: by unlink, or by a rename of another file to its name. The row has the age of the file and the process that removed it.

A file is created by a system call that opens it with O_CREAT; the program at raw_syscalls:sys_exit finds that in the open file. Renames and further hard links of a file do not matter: it is identified by its inode, and it ends when its number of links becomes 0. Its data remains while the file is open. Files that were created before the run, by the kernel, by io_uring or by mknod(2), and files without a name (O_TMPFILE) are not shown.

The removal is observed in functions of the kernel's directory cache, d_delete and d_move, which end a successful unlink and rename. They require fentry or kprobes; without them the tool does not start (exit code 4).

Files are distinguished by the inode generation. On file systems without generations (FUSE, network file systems), the address of the inode in memory is used instead: a file that is evicted and read again before it is deleted is missed.`,
	Peers: []string{
		"A file has one row, for its last name. libbpf-tools and BCC show the removal of the name by which a file was created, also if it has others, and miss a file that was renamed.",
		"A file that is replaced by a rename has a row; the peers miss it.",
		"-p and the other task filters select by the process that removes the file; in the peers by the process that creates it, which is creator_pid here.",
		"FILE is the name without directories, and PATH with -F the path.",
	},
	Examples: []string{
		"filelife                                # all short-lived files",
		"filelife -F --filter 'age_ns < 1000000000'  # files that live less than a second, with paths",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	columns := []string{"time", "pid", "comm", "age_ns", "file"}
	headers := map[string]string{}
	if o.FullPath {
		columns[4], headers["path"] = "path", "FILE"
	}
	return &source.Events[row]{Columns: columns, Headers: headers, BufferBytes: 4 << 20, Row: row{full: o.FullPath}}, nil
}
