package files

import (
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/value"
)

// openFlags may be absent.
type openFlags struct {
	value.OpenFlags
	given bool
}

func (v *openFlags) Absent() bool { return !v.given }

func (v *openFlags) Any() any {
	if !v.given {
		return []string{}
	}
	return v.OpenFlags.Any()
}

// uses are the names of enum use.
var uses = [...]string{"fd", "cwd", "root", "exe"}

// fileType is a name for the type in a mode. From 6.16 on the kernel has anonymous inodes
// that call themselves regular files, but hides it from stat.
func fileType(mode uint32, fs string) string {
	if fs == "anon_inodefs" || fs == "pidfs" {
		return "anon"
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "reg"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFCHR:
		return "chr"
	case unix.S_IFBLK:
		return "blk"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "sock"
	}
	return "anon"
}
