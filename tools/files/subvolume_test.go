package files

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// Files of two btrfs subvolumes have the same inode number: --file selects only one of them, and
// the device column is the one that stat(2) returns.
func TestSubvolumes(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWNS) {
		return
	}
	dir := tooltest.NewMounts(t).MountBtrfs(t)
	var st [2]unix.Stat_t
	var paths [2]string
	for i, name := range []string{"one", "two"} {
		tooltest.Subvolume(t, filepath.Join(dir, name))
		paths[i] = filepath.Join(dir, name, "file")
		f, err := os.Create(paths[i])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Fstat(int(f.Fd()), &st[i]); err != nil {
			t.Fatal(err)
		}
	}
	if st[0].Ino != st[1].Ino || st[0].Dev == st[1].Dev {
		t.Fatalf("files %+v, want one inode number on two devices", st)
	}
	if res := tooltest.JSON(t, Tool, []string{"-o", "--filesystem", paths[0]}, nil); len(res.Events) != 2 {
		t.Errorf("rows of the file system are %v, want two files", res.Events)
	}
	if !tooltest.HasType(t, "btrfs", "btrfs_inode") {
		tooltest.Fails(t, Tool, []string{"--file", paths[0]}, tool.ExitUnsupported, "btrfs")
		return
	}
	for i, path := range paths {
		device := fmt.Sprintf("%d:%d", unix.Major(st[i].Dev), unix.Minor(st[i].Dev))
		rows := tooltest.JSON(t, Tool, []string{"--file", path}, nil).Events
		if len(rows) != 1 || rows[0].Str("path") != path || rows[0].Str("device") != device {
			t.Errorf("holders of %s are %v, want one of device %s", path, rows, device)
		}
	}
}
