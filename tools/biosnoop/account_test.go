package biosnoop

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestAccount reads directly from a file, a known number of times: each read is a row or is
// lost. On a guest that hides process 1, no program runs for what completes in an interrupt of
// that process.
func TestAccount(t *testing.T) {
	const n, size = 5000, 3 * tooltest.BlockSize
	file := directFile(t, size)
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, func() {
		buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Munmap(buf)
		for range n {
			if got, err := unix.Pread(int(file.Fd()), buf, 0); got != size {
				t.Errorf("read %d bytes: %v", got, err)
				return
			}
		}
	})
	// The test's own pages may be read too, but not by as many bytes.
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("bytes") == size })
	tooltest.Accounts(t, res.Summary, len(rows), n)
	t.Logf("%d rows, reasons %v", len(rows), res.Summary.Object("reasons"))
}

// directFile is a file for direct I/O, on a disk.
func directFile(t *testing.T, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	var st unix.Statfs_t
	if err == nil {
		err = unix.Fstatfs(int(file.Fd()), &st)
	}
	if errors.Is(err, unix.EINVAL) || err == nil && st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC {
		return tooltest.NewLoop(t, 0).Dev // no file system on a disk
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestUnended runs the programs by themselves for a request that is issued and, as far as the
// programs see, never completes: once it is used anew, and once the run ends.
func TestUnended(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "issue__raw", "settle")
	// Nothing is there, so all members of the request read as 0: it is idle.
	const request = 0x1000
	for range 2 {
		p.Run("issue__raw", request, request)
	}
	if n := p.Unobserved(); n != 1 {
		t.Errorf("%d lost when the request is used anew, want 1", n)
	}
	settle(t, p)
	if n := p.Unobserved(); n != 2 {
		t.Errorf("%d lost at the end, want 2", n)
	}
}

// settle runs the iterator that ends a run.
func settle(t *testing.T, p *tooltest.Programs) {
	t.Helper()
	it, err := link.AttachIter(link.IterOptions{Program: p.Programs["settle"], Map: p.Maps["ios"]})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
}
