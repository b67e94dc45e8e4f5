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
	dev, inode, err := FileID(path)
	if err != nil || inode != st.Ino || dev == 0 {
		t.Errorf("%d, %d, %v, want inode %d", dev, inode, err, st.Ino)
	}
	if _, _, err := FileID(path + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that it is not there", err)
	}
}
