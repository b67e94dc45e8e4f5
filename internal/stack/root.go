package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// fileID identifies the contents of a file.
type fileID struct {
	dev, inode  uint64
	mtime, size int64 // ns, bytes
}

// handle refers to a regular file that is not open for reading. Opening a device or a pipe, which
// users can map or put in place of a file, can block or have side effects.
type handle struct {
	file    *os.File // O_PATH
	id      fileID
	changed uint64 // ctime in ns
}

// newHandle takes ownership of fd.
func newHandle(fd int, path string) (*handle, error) {
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, errIrregular
	}
	return &handle{f, fileID{st.Dev, st.Ino, st.Mtim.Nano(), st.Size}, uint64(st.Ctim.Nano())}, nil
}

var errIrregular = errors.New("not a regular file")

// handleAt follows path, including magic links of /proc.
func handleAt(path string) (*handle, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return newHandle(fd, path)
}

// open opens the file for reading.
func (h *handle) open() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", h.file.Fd()))
}

func (h *handle) Close() error { return h.file.Close() }

// root is the root directory of a process. It is kept after the process has exited.
type root struct {
	id   inodeID
	dir  *os.File // O_PATH
	refs int      // number of processes with this root
}

type inodeID struct{ dev, inode uint64 }

// inodeOf returns the device and inode number of path.
func inodeOf(path string) (inodeID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inodeID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return inodeID{st.Dev, st.Ino}, nil
}

func openRoot(path string) (*root, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root directory: %w", err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		dir.Close()
		return nil, fmt.Errorf("stat root directory: %w", err)
	}
	return &root{id: inodeID{st.Dev, st.Ino}, dir: dir}, nil
}

// handle resolves a path as the process would: symbolic links, including absolute ones, stay below
// its root. Before Linux 5.6 there is no openat2, and an absolute link leads to corescope's own
// root; the file that is found must pass the same checks.
func (r *root) handle(path string) (*handle, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(r.dir.Fd()), path, &how)
	if errors.Is(err, unix.ENOSYS) {
		fd, err = unix.Openat(int(r.dir.Fd()), "./"+path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return newHandle(fd, path)
}

// open opens a regular file below the root.
func (r *root) open(path string) (*os.File, fileID, error) {
	h, err := r.handle(path)
	if err != nil {
		return nil, fileID{}, err
	}
	defer h.Close()
	f, err := h.open()
	return f, h.id, err
}
