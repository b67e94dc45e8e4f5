package biolatency

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestErrors writes to a disk whose sectors may not be written any more.
func TestErrors(t *testing.T) {
	l := newLoop(t, 0)
	if _, err := unix.FcntlInt(uintptr(l.back), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	const n = 7
	b := block(t)
	res := tooltest.JSON(t, Tool, []string{"--operations", "-d", l.name}, func() {
		for i := range n {
			if _, err := unix.Pwrite(int(l.dev.Fd()), b, int64(i*stride)); !errors.Is(err, unix.EIO) {
				t.Errorf("write to the sealed disk: %v", err)
			}
		}
		readBlocks(t, l.dev, 3)
	})
	if h := find(t, res, map[string]string{"operation": "write"}); h.Num("count") != n {
		t.Errorf("%v writes, want %d", h.Num("count"), n)
	}
	checkCounters(t, res, map[string]int{"errors": n})
}

// TestPartial reads where the disk's file ends within a block: the driver completes the
// first half, gives the request back and takes it again for the rest.
func TestPartial(t *testing.T) {
	l := newLoop(t, 0)
	const n = 5
	failed := 0
	res := tooltest.JSON(t, Tool, []string{"--stages", "--operations", "-d", l.name, "--pid", pid()}, func() {
		b := block(t)
		for i := n; i > 0; i-- {
			if err := unix.Ftruncate(l.back, int64(i*stride+blockSize/2)); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Pread(int(l.dev.Fd()), b, int64(i*stride)); err != nil {
				failed++ // the kernel may call what is not there an error
			}
		}
	})
	if c := res.Summary.Object("counters"); c.Num("partial")+c.Num("requeues")+c.Num("unmatched") == 0 {
		t.Skip("this kernel's loop devices read on by themselves, and complete the whole")
	}
	for _, stage := range []string{"queue", "device", "total"} {
		if h := find(t, res, map[string]string{"stage": stage, "operation": "read"}); h.Num("count") != n {
			t.Errorf("%v reads, want %d: %v", h.Num("count"), n, h)
		}
	}
	checkCounters(t, res, map[string]int{"partial": n, "requeues": n, "errors": failed})
}
