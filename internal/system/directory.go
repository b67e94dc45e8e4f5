package system

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// DirectoryID returns what the kernel knows a directory by: the device of its file system
// (MAJOR << 20 | MINOR) and its inode number. The device is that of the mount, as
// stat(2) gives another one for subvolumes of btrfs.
func DirectoryID(path string) (dev uint32, inode uint64, err error) {
	return identify(path, unix.O_DIRECTORY)
}

// FileID is DirectoryID for any file.
func FileID(path string) (dev uint32, inode uint64, err error) { return identify(path, 0) }

func identify(path string, flags int) (dev uint32, inode uint64, err error) {
	f, err := os.OpenFile(path, unix.O_PATH|flags, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("find file: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("stat %s: %w", path, err)
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return 0, 0, fmt.Errorf("read mount of %s: %w", path, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read mounts: %w", err)
	}
	dev, ok := mountDevice(string(mounts), mountID(string(info)))
	if !ok {
		return 0, 0, fmt.Errorf("find mount of %s: %w", path, os.ErrNotExist)
	}
	return dev, st.Ino, nil
}

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
