package system

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MountTable translates paths within file systems to paths in the mount namespace. It follows
// changes of the mounts.
type MountTable struct {
	path  string   // of the mountinfo file; empty for that of this process
	file  *os.File // reports changes
	byDev map[uint32][]Mount
}

// Path returns the path of a file, given its path within the file system. If several mounts show the
// file, the one with the largest part of the file system is used, and the first of these. It reports
// false if no mount shows the file.
func (t *MountTable) Path(dev uint32, inside string) (string, bool) {
	t.refresh()
	var best *Mount
	rest := ""
	for i, m := range t.byDev[dev] {
		after, ok := below(inside, m.Base)
		if ok && (best == nil || len(m.Base) < len(best.Base)) {
			best, rest = &t.byDev[dev][i], after
		}
	}
	if best == nil {
		return "", false
	}
	if best.Dir == "/" {
		return rest, true
	}
	if rest == "/" {
		return best.Dir, true
	}
	return best.Dir + rest, true
}

// below returns the part of a path below a directory, with its slash.
func below(path, dir string) (string, bool) {
	if dir == "/" {
		return path, true
	}
	after, ok := strings.CutPrefix(path, dir)
	if ok && after == "" {
		return "/", true
	}
	return after, ok && after[0] == '/'
}

// refresh reads the mounts if they have changed since. If they cannot be read, no file has a path until
// they can.
func (t *MountTable) refresh() {
	if t.file != nil && !t.changed() {
		return
	}
	t.byDev = nil
	if t.file == nil && t.open() != nil {
		return
	}
	mounts, err := readMountinfo(t.path)
	if err != nil {
		t.file.Close()
		t.file = nil // the change has been reported
		return
	}
	t.byDev = map[uint32][]Mount{}
	for _, m := range mounts {
		t.byDev[m.Dev] = append(t.byDev[m.Dev], m)
	}
}

// open opens the file that reports changes. The kernel reports each one once per open file, so the
// file must not be one that Go's runtime polls, as those of os.Open.
func (t *MountTable) open() error {
	t.path = cmp.Or(t.path, "/proc/self/mountinfo")
	fd, err := unix.Open(t.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.path, err)
	}
	t.file = os.NewFile(uintptr(fd), t.path)
	return nil
}

// changed reports whether the mounts have changed since the last call, or the file was opened.
func (t *MountTable) changed() bool {
	fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}
