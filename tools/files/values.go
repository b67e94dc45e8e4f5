package files

import (
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/value"
)

// openFlags are the flags of an open file, absent for other uses of a file.
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
var uses = [...]string{bpfUseUSE_FD: "fd", bpfUseUSE_CWD: "cwd", bpfUseUSE_ROOT: "root", bpfUseUSE_EXE: "exe"}

// fileType returns the name of the file type in mode. From kernel 6.16 on, the mode of anonymous
// inodes is that of regular files; stat(2) hides this.
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
