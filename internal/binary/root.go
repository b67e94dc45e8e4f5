package binary

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// OpenInRoot opens a path below the root directory of a process. Symbolic links are resolved within
// that directory.
//
// Returns ErrIrregular.
func OpenInRoot(pid uint32, path string) (*File, error) {
	fd, err := InRoot(pid, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	f, err := Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	f.Path = path
	return f, nil
}

// InRoot opens a path below the root directory of a process with these flags of open(2), and returns
// the file descriptor.
func InRoot(pid uint32, path string, flags uint64) (int, error) {
	root := fmt.Sprintf("/proc/%d/root", pid)
	dir, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
