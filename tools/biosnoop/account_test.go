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

// TestAccount does a known number of direct reads: each is a row or counted as lost. On a guest
// that hides process 1, programs do not run for requests completed in an interrupt of that process.
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
	// The test's own pages may be read too, but in requests of other sizes.
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("bytes") == size })
	// The owner of a request whose issue was not observed is unknown. It is counted as lost, although
	// it can be a request of another process.
	unmatched := int(res.Summary.Object("counters").Num("unmatched"))
	foreign := max(0, min(unmatched, len(rows)+int(res.Summary.Num("lost"))-n))
	tooltest.CheckTotal(t, res.Summary, len(rows), n+foreign)
	t.Logf("%d rows, reasons %v", len(rows), res.Summary.Object("reasons"))
}

// directFile returns a file for direct I/O, on a disk.
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
		return tooltest.NewLoop(t, 0).Dev // no file system is on a disk
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

// TestUnended runs the programs with BPF_PROG_TEST_RUN for a request that is issued and whose
// completion is not observed: it is counted when the request is reused, and when the run ends.
func TestUnended(t *testing.T) {
	p := tooltest.LoadPrograms(t, loadBpf, nil, "issue__raw", "settle")
	// The address is not mapped, so all members of the request read as 0: its state is idle.
	const request = 0x1000
	for range 2 {
		p.Run("issue__raw", request, request)
	}
	if n := p.Unobserved(); n != 1 {
		t.Errorf("%d lost when the request is reused, want 1", n)
	}
	settle(t, p)
	if n := p.Unobserved(); n != 2 {
		t.Errorf("%d lost at the end, want 2", n)
	}
}

// settle runs the iterator that runs at the end of a run.
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
