package system

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FileID identifies an existing file in the kernel.
type FileID struct {
	Inode uint64
	// MountDev is the device of the file system as in mountinfo. Dev is the device that stat(2)
	// returns, which differs in a subvolume of btrfs. Both are MAJOR << 20 | MINOR.
	MountDev, Dev uint32
	// Btrfs reports that the file is on btrfs.
	Btrfs bool
}

// ReadDirectoryID returns the FileID of a directory.
func ReadDirectoryID(path string) (FileID, error) { return identify(path, unix.O_DIRECTORY) }

// ReadFileID returns the FileID of any file.
func ReadFileID(path string) (FileID, error) { return identify(path, 0) }

func identify(path string, flags int) (FileID, error) {
	f, err := os.OpenFile(path, unix.O_PATH|flags, 0)
	if err != nil {
		return FileID{}, fmt.Errorf("find file: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return FileID{}, fmt.Errorf("stat %s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return FileID{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return FileID{}, fmt.Errorf("read mount of %s: %w", path, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return FileID{}, fmt.Errorf("read mounts: %w", err)
	}
	dev, ok := mountDevice(string(mounts), mountID(string(info)))
	if !ok {
		return FileID{}, fmt.Errorf("find mount of %s: %w", path, os.ErrNotExist)
	}
	return FileID{Inode: st.Ino, MountDev: dev, Dev: kernelDev(st.Dev), Btrfs: fs.Type == unix.BTRFS_SUPER_MAGIC}, nil
}

// kernelDev converts a device number of stat(2) to the kernel's dev_t.
func kernelDev(dev uint64) uint32 { return unix.Major(dev)<<20 | unix.Minor(dev) }

// mountID returns the mount ID from a file in /proc/PID/fdinfo: 29 from "mnt_id:<tab>29".
func mountID(fdinfo string) string {
	for line := range strings.Lines(fdinfo) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

// mountDevice returns the device of a mount from /proc/PID/mountinfo: 254:1 from "29 1 254:1 / /
// ...".
func mountDevice(mountinfo, id string) (dev uint32, ok bool) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		var major, minor uint32
		if len(fields) < 3 || fields[0] != id {
			continue
		}
		if n, _ := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); n == 2 {
			return major<<20 | minor, true
		}
	}
	return 0, false
}
