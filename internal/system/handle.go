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

// Types of file handles of cgroups. Both have 8 bytes, which are the cgroup ID as in BPF programs.
// Since 5.5 the ID is a 64-bit number, and also the inode number (FILEID_KERNFS). Before, it
// consists of a 32-bit inode number and a 32-bit generation (FILEID_INO32_GEN).
const (
	fileidInoGen32 = 1
	fileidKernfs   = 0xfe
)

var (
	// errNoHandles means that cgroups cannot be opened by ID, so the hierarchy must be walked.
	errNoHandles = errors.New("cgroups cannot be opened by file handle")
	// errGone means that no cgroup has the ID, or that it is outside the mounted subtree.
	errGone = errors.New("no cgroup has that id")
)

// handleType returns the type of the file handles of the cgroup file system at dir, 0 if it has
// none or is not a cgroup file system.
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

// handleID returns the ID of a cgroup from its file handle.
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

// byHandle returns the path of the cgroup with the given ID in this hierarchy. It takes about 10
// us, independent of the number of cgroups, and requires CAP_DAC_READ_SEARCH.
//
// Returns errGone or errNoHandles.
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

// pathOf returns the path of an open cgroup from /proc/self/fd. For a cgroup outside the mounted
// subtree the kernel reports "/", which is never below the mount point. The files in a cgroup have
// IDs too; they are not directories and return errGone.
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

// undelete removes the suffix " (deleted)" of a cgroup that was removed after it was opened.
func (h *hierarchy) undelete(dir string) string {
	if _, err := os.Lstat(dir); err != nil {
		return strings.TrimSuffix(dir, " (deleted)")
	}
	return dir
}
