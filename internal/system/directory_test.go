package system

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountDevice(t *testing.T) {
	mounts := "29 1 254:1 / / rw - ext4 /dev/vda1 rw\n130 29 0:35 / /x y rw\n13 29 8:300 / /y rw\n7 bad x:y\n"
	for id, want := range map[string]uint32{"29": 254<<20 | 1, "130": 35, "13": 8<<20 | 300, "1": 0, "7": 0, "": 0} {
		if dev, ok := mountDevice(mounts, id); dev != want || ok != (want != 0) {
			t.Errorf("mount %q: device %d, %v, want %d", id, dev, ok, want)
		}
	}
	if got := mountID("pos:\t0\nflags:\t02\nmnt_id:\t29\nino:\t5\n"); got != "29" {
		t.Errorf("mount ID %q, want 29", got)
	}
	if got := mountID("pos:\t0\n"); got != "" {
		t.Errorf("mount ID %q, want none", got)
	}
}

func TestDirectoryID(t *testing.T) {
	id, err := ReadDirectoryID("/proc")
	var st unix.Stat_t
	if err := unix.Stat("/proc", &st); err != nil {
		t.Fatal(err)
	}
	if want := unix.Major(st.Dev)<<20 | unix.Minor(st.Dev); err != nil || id != (FileID{Inode: st.Ino, MountDev: want, Dev: want}) {
		t.Errorf("%+v, %v, want device %d, inode %d", id, err, want, st.Ino)
	}
	for _, path := range []string{"/none", "/proc/version"} {
		if _, err := ReadDirectoryID(path); err == nil {
			t.Errorf("ReadDirectoryID(%s) succeeds, want an error", path)
		}
	}
	if _, err := os.Stat("/proc/loadavg"); err == nil && LoadAverage() == "" {
		t.Error("LoadAverage is empty although /proc/loadavg exists")
	}
}
