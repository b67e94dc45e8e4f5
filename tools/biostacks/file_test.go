package biostacks

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// newFile creates a file of this size, whose data is on the disk.
func newFile(t *testing.T, path string, size int) (*os.File, uint64) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return file, st.Ino
}

// TestFile writes a file, whose data a kernel thread or the test writes to the disk, and reads another one with
// direct I/O, in blocks: each read is a request.
func TestFile(t *testing.T) {
	const size, block = 256 << 10, 4096
	tooltest.OnHooks(t, "dirty", "issue")
	mounts := tooltest.NewMounts(t)
	dir := mounts.At(mounts.MountExt4(t))
	written, writtenInode := newFile(t, filepath.Join(dir, "written"), size)
	_, readInode := newFile(t, filepath.Join(dir, "read"), size)
	direct, err := os.OpenFile(filepath.Join(dir, "read"), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(buf)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"--file"}, func() {
		if _, err := written.WriteAt(buf, 0); err != nil {
			t.Error(err)
		}
		if err := written.Sync(); err != nil {
			t.Error(err)
		}
		for off := int64(0); off < size; off += block {
			if n, err := unix.Pread(int(direct.Fd()), buf[:block], off); n != block {
				t.Errorf("read %d bytes: %v", n, err)
			}
		}
	})
	inodes := map[string]uint64{"written": writtenInode, "read": readInode}
	counts := map[string]float64{}
	for _, h := range res.Histograms {
		key := h.Object("key")
		name := key.Str("file")
		if inodes[name] == 0 || key.Num("file_inode") != float64(inodes[name]) {
			continue
		}
		if key.Num("owner_pid") != float64(os.Getpid()) || key.Str("owner") == "" || key.Str("owner_cgroup") == "" || key.Str("file_device") == "0:0" {
			t.Errorf("owner of %v, want process %d", key, os.Getpid())
		}
		counts[name] += h.Num("count")
	}
	if counts["written"] < 1 || counts["read"] != size/block {
		t.Errorf("requests by file %v, want some of written and %d of read: %v", counts, size/block, res.Histograms)
	}
}

// TestEntry compares the size of the values of the map of files.
func TestEntry(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := unsafe.Sizeof(fileEntry{}), spec.Maps["io_files"].ValueSize; got != uintptr(want) {
		t.Errorf("a fileEntry has %d bytes, struct file_entry %d", got, want)
	}
}
