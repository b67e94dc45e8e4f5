package value

import (
	"bytes"
	"fmt"
)

// PathNames mirrors struct path_names of path.bpf.h: a directory or file as its names.
type PathNames struct {
	Len, RootLen                      uint32
	InRoot, Truncated, Known, Deleted uint8
}

// GivenPath mirrors struct given_path of given.bpf.h: a path as a task gave it to a system call.
type GivenPath struct {
	DirFD int32 `btf:"dfd"`
	Len   uint32
	Base  PathNames
}

// ResolvedPath is the meaning of a [GivenPath]. Its fields are valid until it is set again.
type ResolvedPath struct {
	// Path is absolute in the task's mount namespace, with symbolic links unresolved. If the
	// directory is unknown, it is the path as given.
	Path Bytes
	// TaskPath is relative to the task's root directory, nil if the path is outside of it.
	TaskPath Bytes

	path, inside, taskPath []byte
}

// Read sets r from the tail of an event, and returns the rest of the tail. If full is set, the
// paths are absolute; those of a call without a path are then those of its file descriptor.
func (r *ResolvedPath) Read(g *GivenPath, tail []byte, full bool) (rest []byte, err error) {
	if int(g.Len+g.Base.Len) > len(tail) {
		return nil, fmt.Errorf("decode path: tail has %d of %d bytes", len(tail), g.Len+g.Base.Len)
	}
	text, names, rest := tail[:g.Len], tail[g.Len:][:g.Base.Len], tail[g.Len+g.Base.Len:]
	r.Path, r.TaskPath = nil, nil
	if len(text) > 0 {
		r.Path = text[:len(text)-1]
	}
	if full {
		r.Set(&g.Base, names, r.Path)
	}
	return rest, nil
}

// Set makes a path absolute. base is the directory that it is relative to. The path is unchanged if
// that is unknown, because the file descriptor is not open.
func (r *ResolvedPath) Set(base *PathNames, names []byte, given Bytes) {
	r.Path, r.TaskPath = given, nil
	if base.Known == 0 {
		return
	}
	below := names[:base.RootLen]
	cut := base.Truncated != 0
	if base.InRoot != 0 {
		r.taskPath = appendBelow(r.taskPath[:0], below, false, given)
		r.TaskPath = r.taskPath
	}
	if base.InRoot != 0 && (len(below) < len(names) || cut) {
		r.inside = appendInside(r.inside[:0], bytes.Count(below, []byte{0}), given)
		given = r.inside
	}
	r.path = appendBelow(r.path[:0], names, cut, given)
	r.Path = r.path
}

// appendBelow appends the base directory and the path relative to it.
func appendBelow(b, names []byte, cut bool, path []byte) []byte {
	if len(names) > 0 || cut || len(path) == 0 {
		b = AppendPath(b, names, cut)
	}
	if len(path) == 0 {
		return b
	}
	path = bytes.TrimLeft(path, "/")
	return append(append(b, '/'), path...)
}

// appendInside appends a path that starts depth names below a root without each ".." that would
// lead above it: there the kernel stays at the root.
func appendInside(b []byte, depth int, path []byte) []byte {
	first := true
	for name := range bytes.SplitSeq(path, []byte("/")) {
		switch string(name) {
		case "", ".":
		case "..":
			if depth == 0 {
				continue
			}
			depth--
		default:
			depth++
		}
		if !first {
			b = append(b, '/')
		}
		b, first = append(b, name...), false
	}
	return b
}
