package blockio

import (
	"fmt"
	"maps"
	"unsafe"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Kinds of data of a request: enum io_data of biodata.bpf.h.
const (
	DataNone = iota
	DataUnknown
	DataFile
	DataMetadata
	DataJournal
	DataDevice
	DataSeveral
)

// labels are the names of data that is not of one file.
var labels = map[uint8]string{
	DataMetadata: "[metadata]", DataJournal: "[journal]", DataDevice: "[device]", DataSeveral: "[several]",
}

// dirtiers is the number of files whose last dirtying task is known.
const dirtiers = 16 << 10

// functions are the kernel functions whose addresses tell what a bio is for; the variable targ_NAME
// has the address.
var functions = []string{
	"iomap_dio_bio_end_io", "bio_chain_endio", "btrfs_simple_end_io", "btrfs_orig_write_end_io", "xlog_bio_end_io",
	"blkdev_bio_end_io", "blkdev_bio_end_io_async", "blkdev_bio_end_io_simple", "dio_bio_end_io", "dio_bio_end_aio",
}

// Tail mirrors struct io_tail: what follows an event if a column of File is shown.
type Tail struct {
	Ino, OwnerCgroupID      uint64
	OwnerPID, Dev, MountDev uint32
	Data                    uint8
	_                       [3]byte
	Owner                   value.Comm
	Path                    value.PathNames
}

// File has the columns of the file that a request is for.
type File struct {
	File        value.Name    `json:"file" col:"FILE,width=40,extra,need=want_file" help:"file whose data the request reads or writes: a path of the file, or [metadata] of the file system, [journal], [device] for data of a disk or partition itself, [several] if the request has data of more than one file; after the disk and a colon, the path within a file system that is not mounted in the mount namespace of corescope; absent if unknown, and for requests without data"`
	FileInode   value.Nonzero `json:"file_inode" col:"FILE_INODE,width=10,right,extra,need=want_file" help:"inode number of this file; absent if the request is not for one file"`
	Owner       value.Name    `json:"owner" col:"OWNER,width=16,extra,need=want_file" help:"name of the thread that the data is from: for writes from the page cache the last one that made a clean page of the file dirty, for others the one that submitted the request; absent if unknown, without a file, and if the data of several files is from several threads"`
	OwnerPID    value.Nonzero `json:"owner_pid" col:"OWNER_PID,width=9,right,extra,need=want_file" help:"process of this thread, in the initial PID namespace"`
	OwnerCgroup value.Name    `json:"owner_cgroup" col:"OWNER_CGROUP,width=30,extra,need=want_file" help:"path of the cgroup of this thread, at that time; cgroup is the one that the kernel accounts the request to"`

	mounts *system.MountTable
}

// NewFile returns a File for the initial row.
func NewFile() File { return File{mounts: &system.MountTable{}} }

// Decode sets the columns from the data after the event, which is empty if none of them is shown. disk
// is the name of the request's disk.
func (f *File) Decode(data []byte, disk string, env *tool.Env) error {
	f.File, f.FileInode, f.Owner, f.OwnerPID, f.OwnerCgroup = "", 0, "", 0, ""
	var t Tail
	if len(data) < int(unsafe.Sizeof(t)) {
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t)), data)
	if t.OwnerPID != 0 {
		f.Owner, f.OwnerPID = value.NameOf(t.Owner[:]), value.Nonzero(t.OwnerPID)
		f.OwnerCgroup = value.Name(env.CgroupPath(t.OwnerCgroupID))
	}
	if t.Data != DataFile {
		f.File = Label(t.Data)
		return nil
	}
	f.FileInode = value.Nonzero(t.Ino)
	return f.setPath(&t, data[unsafe.Sizeof(t):], disk)
}

func (f *File) setPath(t *Tail, names []byte, disk string) error {
	if t.Path.Known == 0 {
		return nil
	}
	if int(t.Path.Len) > len(names) {
		return fmt.Errorf("decode path: tail has %d of %d bytes", len(names), t.Path.Len)
	}
	inside := string(value.AppendPath(nil, names[:t.Path.Len], t.Path.Truncated != 0))
	path, ok := inside, t.Path.Truncated != 0
	if !ok {
		path, ok = f.mounts.Path(t.MountDev, inside)
	}
	if !ok {
		path = disk + ":" + inside
	}
	if t.Path.Deleted != 0 {
		path += " (deleted)"
	}
	f.File = value.Name(path)
	return nil
}

// FileKey mirrors struct file_key of filekey.bpf.h.
type FileKey struct {
	Ino, CgroupID  uint64
	Dev, PID, Data uint32
	Comm           value.Comm
	_              uint32
}

// ByFile has the columns of tools that count by file and owner.
type ByFile struct {
	File      value.Name    `json:"file" col:"FILE,width=24,extra,need=want_file" help:"name of the file whose data is read or written, without directories; [metadata] of the file system, [journal], [device] for data of a disk or partition itself, [several] for requests with data of more than one file; absent if unknown, and for requests without data"`
	FileInode value.Nonzero `json:"file_inode" col:"FILE_INODE,width=10,right,extra,need=want_file" help:"inode number of this file; absent if the requests are not for one file"`
	FileDev   value.Device  `json:"file_device" col:"FILE_DEV,width=8,extra,need=want_file" help:"device number of the file as in stat(2), major:minor; 0:0 without a file"`
	Owner     value.Name    `json:"owner" col:"OWNER,width=16,extra,need=want_file" help:"name of the thread that the data is from: for writes from the page cache the last one that made a clean page of the file dirty, for others the one that submitted the requests; absent if unknown, without a file, and if the data of several files is from several threads"`
	OwnerPID  value.Nonzero `json:"owner_pid" col:"OWNER_PID,width=9,right,extra,need=want_file" help:"process of this thread, in the initial PID namespace"`
	OwnerCG   value.Name    `json:"owner_cgroup" col:"OWNER_CGROUP,width=30,extra,need=want_file" help:"path of the cgroup of this thread, at that time; cgroup is the one that the kernel accounts the requests to"`
}

// Columns returns the columns of a key. name is that of the file.
func (k *FileKey) Columns(name []byte, env *tool.Env) ByFile {
	b := ByFile{File: Label(uint8(k.Data))}
	if k.Data == DataFile {
		b.File, b.FileInode, b.FileDev = value.NameOf(name), value.Nonzero(k.Ino), value.Device(k.Dev)
	}
	if k.PID != 0 {
		b.Owner, b.OwnerPID, b.OwnerCG = value.NameOf(k.Comm[:]), value.Nonzero(k.PID), value.Name(env.CgroupPath(k.CgroupID))
	}
	return b
}

// PlanFile prepares a plan for the columns of the file: without them, nothing of it is loaded. sizes
// are those of further maps with them.
func PlanFile(plan *tool.Plan, sizes map[string]uint32) {
	complete := func(plan *tool.Plan) error {
		maps.Copy(plan.MapEntries, sizes)
		return needFile(plan)
	}
	plan.Features = map[string]tool.Feature{"want_file": {Hooks: []string{"dirty"}, Complete: complete}}
}

// needFile completes the plan for the columns of the file.
func needFile(plan *tool.Plan) error {
	plan.MapEntries["dirtiers"] = dirtiers
	plan.Settle = append(plan.Settle, tool.Iterator{Program: "settle_dirtiers", Map: "dirtiers"})
	addresses, err := system.KernelFunctions(functions)
	if err != nil {
		return fmt.Errorf("find functions that complete direct I/O: %w", err)
	}
	if len(addresses) == 0 {
		plan.Note("the kernel hides its addresses (kernel.kptr_restrict): files of direct I/O are unknown")
	}
	for name, address := range addresses {
		plan.Variables["targ_"+name] = address
	}
	return nil
}

// Label returns the label of data that is not of one file (enum io_data), or "".
func Label(data uint8) value.Name { return value.Name(labels[data]) }
