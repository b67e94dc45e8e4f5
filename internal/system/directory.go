package system

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FileID is what the kernel knows a file by, as long as the file is there.
type FileID struct {
	Inode uint64
	// MountDev is the device of its file system, as mountinfo has it, and Dev what stat(2) shows:
	// another one within a subvolume of btrfs. Both are MAJOR << 20 | MINOR.
	MountDev, Dev uint32
	// Btrfs tells that it is on a btrfs.
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

// kernelDev is a device number of stat(2) as the kernel has it.
func kernelDev(dev uint64) uint32 { return unix.Major(dev)<<20 | unix.Minor(dev) }

// mountID reads "mnt_id:<tab>29" of a file in /proc/PID/fdinfo.
func mountID(fdinfo string) string {
	for line := range strings.Lines(fdinfo) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

// mountDevice reads "29 1 254:1 / / ...", the line of a mount in /proc/PID/mountinfo.
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
