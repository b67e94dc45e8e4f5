// Package files lists the open files of processes.
package files

import (
	"errors"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh files.bpf.c -type use

type options struct {
	File       string `flag:"file" arg:"PATH" help:"only processes that hold this file or directory, under any name"`
	FileSystem string `flag:"filesystem" arg:"PATH" help:"only files on the file system of this path (which prevent its unmounting)"`
	Open       bool   `flag:"open,o" help:"only file descriptors: no working directories, root directories or executables"`
}

type event struct {
	value.Task
	FlagBits   value.OpenFlags `btf:"flags"`
	PositionNr uint64          `btf:"position"`
	Size       value.Size      `json:"size_bytes" col:"SIZE_KB,width=10,right" help:"size of the file; text shows units of 1,024" btf:"size"`
	FDNr       uint32          `btf:"fd"`
	Mode       uint32
	Links      uint32 `json:"links" col:"LINKS,width=5,right" help:"number of hard links; 0 for a file that is deleted when it is closed"`
	UseNr      uint32 `btf:"use"`
	value.File
}

type row struct {
	event
	FD       value.Count `json:"fd" col:"FD,width=4,right" help:"file descriptor; absent unless use is fd"`
	Use      string      `json:"use" col:"USE,width=4" help:"how the process uses the file: fd (descriptor), cwd (working directory), root (root directory) or exe (executable)"`
	Type     string      `json:"filetype" col:"TYPE,width=4" help:"reg, dir, link, chr, blk, fifo, sock, or anon for an anonymous inode, as of epoll_create(2)"`
	Flags    openFlags   `json:"flags" col:"FLAGS,width=20" help:"access mode and flags of the open file, by name, and O_CLOEXEC of the descriptor, as in /proc/PID/fdinfo"`
	Position value.Count `json:"position" col:"POSITION,width=10,right" help:"file position"`
	Path     value.Bytes `json:"path" col:"PATH,width=40" help:"path, absolute in its mount namespace; pipe:[INODE], socket:[INODE], anon_inode:[NAME] and so on for files without a directory; ... before a path that is too long"`

	path []byte
}

// Decode computes the derived columns.
func (r *row) Decode(tail []byte) error {
	var err error
	if r.path, err = r.File.AppendPath(r.path[:0], tail); err != nil {
		return err
	}
	r.Path = r.path
	r.Use = uses[r.UseNr%uint32(len(uses))]
	r.Type = fileType(r.Mode, r.FS.String())
	open := r.UseNr == 0
	r.FD = value.Count{N: uint64(r.FDNr), Given: open}
	r.Position = value.Count{N: r.PositionNr, Given: open}
	r.Flags = openFlags{r.FlagBits, open}
	return nil
}

// Tool is the definition of files.
var Tool = tool.Define(tool.Spec{
	Name:     "files",
	Category: "file",
	Summary:  "List open files of processes (like lsof)",
	Description: `Lists the open files of processes with process, descriptor and path, as lsof does. Working directories, root directories and executables, which also keep a file system busy, are listed before them. Files that are only mapped into memory are not listed; see maps(8).

Threads usually share the descriptor table of their process. It is listed once, with the TID of the thread-group leader, which is the PID. If a thread has its own table (unshare(2) with CLONE_FILES), that table is listed with the TID of the thread. The same applies to threads with their own working and root directory (CLONE_FS).

--file and --filesystem compare device and inode numbers, so they find files that were opened by any name and through any mount. On btrfs, --file also compares the subvolume, and --filesystem includes all subvolumes. Only processes in the PID namespace of corescope are listed.`,
	Peers: []string{
		"BCC and libbpf-tools have no tool of this name.",
	},
	Examples: []string{
		"files -p 1234                           # files of one process",
		"files --filesystem /mnt                 # processes that prevent unmounting /mnt",
		`files --filter 'links == 0 && filetype == "reg"' # deleted files that still use disk space`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	vars, err := o.variables(env)
	if err != nil {
		return nil, err
	}
	list := &source.List[row]{
		Plan:      tool.Plan{Variables: vars},
		Columns:   []string{"pid", "tid", "comm", "use", "fd", "filetype", "flags", "size_bytes", "path"},
		Iterators: []tool.Iterator{{Program: "places"}, {Program: "files"}},
	}
	if o.Open {
		list.Iterators = list.Iterators[1:]
	}
	return list, nil
}

func (o *options) variables(env *tool.Env) (map[string]any, error) {
	vars := map[string]any{}
	if o.File != "" && o.FileSystem != "" {
		return nil, errors.New("--file and --filesystem cannot be combined")
	}
	path := o.File + o.FileSystem
	if path == "" {
		return vars, nil
	}
	id, err := system.ReadFileID(path)
	if o.File != "" {
		id, err = env.FileID(path)
	}
	if err != nil {
		return nil, err
	}
	vars["targ_by_dev"], vars["targ_by_file"] = o.File == "", o.File != ""
	vars["targ_mount_dev"], vars["targ_dev"], vars["targ_inode"] = id.MountDev, id.Dev, id.Inode
	return vars, nil
}
