// Package files lists what files processes hold.
package files

import (
	"errors"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh files.bpf.c

type options struct {
	File       string `flag:"file" arg:"PATH" help:"only who holds this file or directory, by whatever name"`
	FileSystem string `flag:"filesystem" arg:"PATH" help:"only what is on the file system of this path: what keeps it from being unmounted"`
	Open       bool   `flag:"open,o" help:"only descriptors: no working and root directories, and no programs"`
}

type event struct {
	value.Task
	FlagBits   value.OpenFlags `btf:"flags"`
	PositionNr uint64          `btf:"position"`
	Size       value.Size      `json:"size_bytes" col:"SIZE_KB,width=10,right" help:"size of the file; text shows units of 1,024" btf:"size"`
	FDNr       uint32          `btf:"fd"`
	Mode       uint32
	Links      uint32 `json:"links" col:"LINKS,width=5,right" help:"names that the file has; 0 for one that goes when it is closed"`
	UseNr      uint32 `btf:"use"`
	value.File
}

type row struct {
	event
	FD       value.Count `json:"fd" col:"FD,width=4,right" help:"the descriptor; absent where use is not fd"`
	Use      string      `json:"use" col:"USE,width=4" help:"what the file is to the process: fd for a descriptor; cwd and root for its working and root directory; exe for its program"`
	Type     string      `json:"filetype" col:"TYPE,width=4" help:"reg, dir, link, chr, blk, fifo, sock, or anon for what is nothing but a descriptor, as of epoll_create(2)"`
	Flags    openFlags   `json:"flags" col:"FLAGS,width=20" help:"access mode and flags of the open file by name, and O_CLOEXEC of the descriptor, as in /proc/PID/fdinfo"`
	Position value.Count `json:"position" col:"POSITION,width=10,right" help:"the open file's position"`
	Path     value.Bytes `json:"path" col:"PATH,width=40" help:"its path, absolute in its mount namespace; pipe:[INODE], socket:[INODE], anon_inode:[WHAT] and the like for what is in no directory; \"...\" before one that is too long"`

	path []byte
}

// Decode fills what follows from the event.
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

// Tool is files.
var Tool = tool.Define(tool.Spec{
	Name:     "files",
	Category: "file",
	Summary:  "List the files that processes hold",
	Description: `Lists what processes have open, with the process, the descriptor and the file: lsof's question. Their working directories, root directories and programs are listed ahead of it, which hold a file system just as well. Files that are only mapped into memory are not; see maps(8).

A table of descriptors that the threads of a process share is listed once, for the process; one that a thread has of its own is listed for that thread, and so are its directories.

--file and --filesystem go by the inode and the device, so it does not matter by which name or mount a file was opened. Only processes of the PID namespace that corescope runs in are listed.`,
	Peers: []string{
		"There is no tool of this name in BCC or libbpf-tools.",
	},
	Examples: []string{
		"files -p 1234                           # what a process holds",
		"files --filesystem /mnt                 # what keeps it from being unmounted",
		"files --filter 'links == 0 && filetype == \"reg\"' # files that take room and have no name",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	vars, err := o.variables()
	if err != nil {
		return nil, err
	}
	list := &tool.List[row]{
		Plan:      tool.Plan{Variables: vars},
		Columns:   []string{"pid", "comm", "use", "fd", "filetype", "flags", "size_bytes", "path"},
		Iterators: []tool.Iterator{{Program: "places"}, {Program: "files"}},
	}
	if o.Open {
		list.Iterators = list.Iterators[1:]
	}
	return list, nil
}

func (o *options) variables() (map[string]any, error) {
	vars := map[string]any{}
	if o.File != "" && o.FileSystem != "" {
		return nil, errors.New("--file and --filesystem do not go together")
	}
	path := o.File + o.FileSystem
	if path == "" {
		return vars, nil
	}
	dev, inode, err := system.FileID(path)
	if err != nil {
		return nil, err
	}
	vars["targ_by_dev"], vars["targ_dev"] = true, dev
	vars["targ_by_file"], vars["targ_inode"] = o.File != "", inode
	return vars, nil
}
