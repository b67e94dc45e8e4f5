package value

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// File mirrors struct file_info of file.bpf.h, the identity of a file.
type File struct {
	Inode   Nonzero     `json:"inode" col:"INODE,width=9,right" help:"inode number"`
	Device  knownDevice `json:"device" col:"DEVICE,width=7" help:"device number as in stat(2), major:minor; for overlayfs the number of the overlay file system" btf:"dev"`
	Deleted bool        `json:"deleted" col:"DELETED,width=7" help:"whether the name by which the file was opened was removed; true for memory files that never had a name in a directory, such as those of memfd_create(2)"`
	pseudo  bool
	_       [2]byte
	FS      knownComm `json:"fs" col:"FS,width=12" help:"type of the file system"`
	names   PathNames `btf:"path"`
	_       uint32
}

// AppendPath appends the path of the file, in the form of /proc/PID/fd, from the tail of the
// event. Files outside of any directory are named by their type, as "pipe:[123]". It also sets
// Deleted for memory that is represented as a file.
func (f *File) AppendPath(b, tail []byte) ([]byte, error) {
	if int(f.names.Len) > len(tail) {
		return b, fmt.Errorf("decode path: tail has %d of %d bytes", len(tail), f.names.Len)
	}
	names := tail[:f.names.Len]
	if !f.pseudo {
		return AppendPath(b, names, f.names.Truncated != 0), nil
	}
	name := strings.TrimRight(string(names), "\x00")
	switch f.FS.String() {
	case "pipefs":
		name = "pipe"
	case "sockfs":
		name = "socket"
	case "anon_inodefs":
		return append(append(b, "anon_inode:"...), name...), nil
	case "pidfs":
		return append(b, "anon_inode:[pidfd]"...), nil
	case "nsfs":
	case "dmabuf":
		return append(append(b, '/'), name...), nil
	default:
		// Memory represented as a file: memfd_create(2), System V shared memory, shared anonymous
		// memory. Its name was never in a directory, so the kernel marks it as deleted.
		f.Deleted = true
		return append(append(b, '/'), name...), nil
	}
	b = append(append(b, name...), ":["...)
	return append(strconv.AppendUint(b, uint64(f.Inode), 10), ']'), nil
}

// Device is a device number in the encoding of the kernel: major << 20 | minor.
type Device uint32

// knownDevice is a device number that is absent if it is 0: without a file.
type knownDevice struct{ Device }

func (v *knownDevice) Absent() bool { return v.Device == 0 }

// knownComm is a name that is absent if it is empty.
type knownComm struct{ Comm }

func (v *knownComm) Absent() bool { return v.Comm[0] == 0 }

func (v *Device) AppendText(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(*v>>20), 10)
	return strconv.AppendUint(append(b, ':'), uint64(*v&0xfffff), 10)
}

func (v *Device) AppendJSON(b []byte) []byte { return append(v.AppendText(append(b, '"')), '"') }
func (v *Device) Any() any                   { return string(v.AppendText(nil)) }
func (v *Device) Schema() Schema             { return Schema{Type: "string"} }

// FileOp is an operation on a file: enum fs_op of fsop.bpf.h.
type FileOp uint32

var fileOps = [...]string{"read", "write", "open", "fsync", "getattr"}

// String returns the name of the operation.
func (v FileOp) String() string {
	if int(v) >= len(fileOps) {
		return "unknown"
	}
	return fileOps[v]
}

// ParseFileOp returns the operation with the given name.
func ParseFileOp(name string) (FileOp, bool) {
	i := slices.Index(fileOps[:], name)
	return FileOp(max(i, 0)), i >= 0
}

// IsData reports whether the operation is a read or a write.
func (v FileOp) IsData() bool { return v < 2 }

// AppendText appends the letter that libbpf-tools use: R, W, O, F or G.
func (v *FileOp) AppendText(b []byte) []byte { return append(b, v.String()[0]&^' ') }
func (v *FileOp) AppendJSON(b []byte) []byte { return AppendString(b, v.String()) }
func (v *FileOp) Any() any                   { return v.String() }
func (v *FileOp) Schema() Schema             { return Schema{Type: "string"} }
