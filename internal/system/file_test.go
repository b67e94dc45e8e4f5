package system

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFileID(t *testing.T) {
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	id, err := ReadFileID(path)
	if err != nil || id.Inode != st.Ino || id.MountDev == 0 || id.Dev != unix.Major(st.Dev)<<20|unix.Minor(st.Dev) {
		t.Errorf("%+v, %v, want inode %d, device %x", id, err, st.Ino, st.Dev)
	}
	if _, err := ReadFileID(path + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v, want %v", err, os.ErrNotExist)
	}
}
