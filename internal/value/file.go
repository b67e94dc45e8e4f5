package value

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// File is struct file_info of file.bpf.h: which file it is.
type File struct {
	Inode   uint64 `json:"inode" col:"INODE,width=9,right" help:"inode number"`
	Device  Device `json:"device" col:"DEVICE,width=7" help:"device number of its file system, major:minor" btf:"dev"`
	Deleted bool   `json:"deleted" col:"DELETED,width=7" help:"the name by which it was opened is gone"`
	pseudo  bool
	_       [2]byte
	FS      Comm      `json:"fs" col:"FS,width=12" help:"type of its file system"`
	names   pathNames `btf:"path"`
	_       uint32
}

type pathNames struct {
	Len, RootLen      uint32
	InRoot, Truncated uint8
	_                 [2]byte
}

// AppendPath appends the file's path, as /proc/PID/fd tells it, from what was sent behind
// the event. One that is in no directory is called after what it is.
func (f *File) AppendPath(b, tail []byte) ([]byte, error) {
	if int(f.names.Len) > len(tail) {
		return b, fmt.Errorf("event has %d bytes of a path, not %d", len(tail), f.names.Len)
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
	default: // of memfd_create and the like
		return append(append(b, '/'), name...), nil
	}
	b = append(append(b, name...), ":["...)
	return append(strconv.AppendUint(b, f.Inode, 10), ']'), nil
}

// Device is the kernel's number of a device: major << 20 | minor.
type Device uint32

func (v *Device) AppendText(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(*v>>20), 10)
	return strconv.AppendUint(append(b, ':'), uint64(*v&0xfffff), 10)
}

func (v *Device) AppendJSON(b []byte) []byte { return append(v.AppendText(append(b, '"')), '"') }
func (v *Device) Any() any                   { return string(v.AppendText(nil)) }
func (v *Device) Schema() Schema             { return Schema{Type: "string"} }

// FileOp is what was done with a file: enum fs_op of fsop.bpf.h.
type FileOp uint32

var fileOps = [...]string{"read", "write", "open", "fsync", "getattr"}

// String is the operation's name.
func (v FileOp) String() string {
	if int(v) >= len(fileOps) {
		return "unknown"
	}
	return fileOps[v]
}

// ParseFileOp reads an operation's name.
func ParseFileOp(name string) (FileOp, bool) {
	i := slices.Index(fileOps[:], name)
	return FileOp(max(i, 0)), i >= 0
}

// IsData tells that it moves bytes.
func (v FileOp) IsData() bool { return v < 2 }

// AppendText appends the letter that peers have for it: R, W, O, F or G.
func (v *FileOp) AppendText(b []byte) []byte { return append(b, v.String()[0]&^' ') }
func (v *FileOp) AppendJSON(b []byte) []byte { return AppendString(b, v.String()) }
func (v *FileOp) Any() any                   { return v.String() }
func (v *FileOp) Schema() Schema             { return Schema{Type: "string"} }
