package biotop

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestFile writes a file, whose data a kernel thread or the test writes to the disk, and reads it with
// direct I/O.
func TestFile(t *testing.T) {
	const size = 256 << 10
	tooltest.OnHooks(t, "dirty", "issue")
	mounts := tooltest.NewMounts(t)
	path := filepath.Join(mounts.At(mounts.MountExt4(t)), "data")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	direct, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(buf)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"--columns", "+file,file_inode,file_device,owner,owner_pid,owner_cgroup", "60s"}, func() {
		if _, err := file.WriteAt(buf, 0); err != nil {
			t.Error(err)
		}
		if err := file.Sync(); err != nil {
			t.Error(err)
		}
		if n, err := unix.Pread(int(direct.Fd()), buf, 0); n != size {
			t.Errorf("read %d bytes: %v", n, err)
		}
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	bytes := map[string]float64{}
	for _, r := range res.Rows {
		if r.Str("file") != "data" || r.Num("file_inode") != float64(st.Ino) {
			continue
		}
		if r.Num("owner_pid") != float64(os.Getpid()) || r.Str("owner") == "" {
			t.Errorf("owner of %v, want process %d", r, os.Getpid())
		}
		bytes[r.Str("op")] += r.Num("bytes")
	}
	if bytes["W"] != size || bytes["R"] != size {
		t.Errorf("bytes of the file by operation %v, want %d written and read: %v", bytes, size, res.Rows)
	}
}
