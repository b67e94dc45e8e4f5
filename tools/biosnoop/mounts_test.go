package biosnoop

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestMountsChange moves a file system to another mount point during the run. In between, it is not
// mounted, but still in use.
func TestMountsChange(t *testing.T) {
	tooltest.OnHooks(t, "dirty", "issue")
	if !tooltest.InNamespaces(t, 0) {
		return
	}
	first := tooltest.NewMounts(t).MountExt4Journal(t)
	disk, second := diskOf(t, first), t.TempDir()
	t.Cleanup(func() { unix.Unmount(second, unix.MNT_DETACH) })
	root, err := unix.Open(first, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	args := []string{"-d", disk, "--columns", fileColumns}
	res := tooltest.JSONEvents(t, Tool, args, func(events func() []tooltest.Row, more func() bool) {
		writeUntil := func(name string) {
			for more() && !slices.ContainsFunc(events(), func(r tooltest.Row) bool { return hasName(r, name) }) {
				writeAt(t, root, name)
			}
		}
		writeUntil("one")
		if err := unix.Unmount(first, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		writeUntil("two")
		if err := unix.Mount("/dev/"+disk, second, "ext4", 0, ""); err != nil {
			t.Error(err)
		}
		writeUntil("three")
	})
	for name, want := range map[string]string{"one": first + "/one", "two": disk + ":/two", "three": second + "/three"} {
		i := slices.IndexFunc(res.Events, func(r tooltest.Row) bool { return hasName(r, name) })
		// The first row was decoded before the next change of the mounts.
		if i < 0 || res.Events[i].Str("file") != want {
			t.Errorf("first row of %s: %v, want file %s", name, res.Events[max(i, 0):], want)
		}
	}
}

// hasName reports whether a row is of a file with this name.
func hasName(r tooltest.Row, name string) bool {
	return strings.HasSuffix(r.Str("file"), "/"+name)
}

// writeAt writes a page of a file to the disk.
func writeAt(t *testing.T, dir int, name string) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, make([]byte, 4096), 0); err != nil {
		t.Error(err)
	}
	if err := unix.Fsync(fd); err != nil {
		t.Error(err)
	}
}
