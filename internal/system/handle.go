package system

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Types of the file handles of cgroups. Either is 8 bytes that are the cgroup id as BPF sees it: as
// one number since 5.5, where it is the inode number too, and before as an inode number and a
// generation, each of 32 bits.
const (
	fileidInoGen32 = 1
	fileidKernfs   = 0xfe
)

var (
	// errNoHandles means that cgroups cannot be opened by id here; they have to be looked for.
	errNoHandles = errors.New("cgroups cannot be opened by file handle")
	// errGone means that no cgroup has that id any more, or that it lies outside the mounted part.
	errGone = errors.New("no cgroup has that id")
)

// handleType returns what file handles the cgroup file system at dir makes, 0 if none or if it is not
// a cgroup file system at all.
func handleType(dir string) int32 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || (fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC) {
		return 0
	}
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil || handle.Size() != 8 || (handle.Type() != fileidKernfs && handle.Type() != fileidInoGen32) {
		return 0
	}
	return handle.Type()
}

// handleID returns the id of a cgroup by its file handle.
func handleID(dir string) (uint64, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return 0, fmt.Errorf("get handle of cgroup: %w", err)
	}
	if handle.Size() != 8 {
		return 0, fmt.Errorf("get handle of cgroup: %d bytes instead of 8", handle.Size())
	}
	return binary.NativeEndian.Uint64(handle.Bytes()), nil
}

// byHandle returns the path of a cgroup id in this hierarchy. It costs some 10 us whatever the number of
// cgroups, and takes CAP_DAC_READ_SEARCH. The error is errGone or errNoHandles.
func (h *hierarchy) byHandle(id uint64) (string, error) {
	if h.handle == 0 {
		return "", errNoHandles
	}
	mount, err := unix.Open(h.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", errNoHandles
	}
	defer unix.Close(mount)
	handle := unix.NewFileHandle(h.handle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(mount, handle, unix.O_PATH|unix.O_CLOEXEC)
	if errors.Is(err, unix.ESTALE) {
		return "", errGone
	}
	if err != nil {
		return "", errNoHandles
	}
	defer unix.Close(fd)
	return h.pathOf(fd)
}

// pathOf asks the kernel where an open cgroup lies. A cgroup outside the mounted part is said to lie
// at "/", which is never below the mount point. The files of a cgroup have ids of the same kind.
func (h *hierarchy) pathOf(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", errGone
	}
	dir, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", errNoHandles
	}
	if cgroup, ok := h.cgroup(h.undelete(dir)); ok {
		return cgroup, nil
	}
	return "", errGone
}

// undelete takes off the mark of a cgroup that was removed since it was opened.
func (h *hierarchy) undelete(dir string) string {
	if _, err := os.Lstat(dir); err != nil {
		return strings.TrimSuffix(dir, " (deleted)")
	}
	return dir
}
