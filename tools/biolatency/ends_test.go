package biolatency

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestErrors writes to a disk whose backing file is sealed against writes.
func TestErrors(t *testing.T) {
	tooltest.OnHooks(t, "complete")
	l := newLoop(t, 0)
	if _, err := unix.FcntlInt(uintptr(l.back), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	const n = 7
	b := block(t)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"--operations", "-d", l.name}, func() {
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

// TestPartial reads where the backing file ends within a block: the driver completes the first
// half, requeues the request and issues it again for the rest. It must remain one I/O of the task
// that submitted it, even if requests have no start time.
func TestPartial(t *testing.T) {
	tooltest.OnHooks(t, "requeue", "complete")
	seen := partial(t, "1", "")
	if c := seen.Summary.Object("counters"); c.Num("partial") == 0 && c.Num("requeues") == 0 {
		t.Skip("loop devices of this kernel complete such reads at once")
	}
	for _, test := range []struct{ name, iostats, filter string }{
		{"task", "1", "--pid=" + pid()}, {"unaccounted", "0", ""}, {"unaccounted task", "0", "--pid=" + pid()},
	} {
		t.Run(test.name, func(t *testing.T) { partial(t, test.iostats, test.filter) })
	}
}

// partial reads blocks of which the backing file has only half, with partial completions if the
// kernel makes any.
func partial(t *testing.T, iostats, filter string) *tooltest.Result {
	t.Helper()
	l := newLoop(t, 0)
	l.account(t, iostats)
	args := []string{"--stages", "--operations", "-d", l.name}
	if filter != "" {
		args = append(args, filter)
	}
	const n = 5
	failed := 0
	res := tooltest.JSONUndisturbed(t, Tool, args, func() {
		failed = 0
		for i := n; i > 0; i-- {
			failed += readHalf(t, l, int64(i*stride))
		}
	})
	for _, stage := range []string{"queue", "device", "total"} {
		if h := find(t, res, map[string]string{"stage": stage, "operation": "read"}); h.Num("count") != n {
			t.Errorf("%v reads, want %d: %v", h.Num("count"), n, h)
		}
	}
	want := map[string]int{"errors": failed}
	if c := res.Summary.Object("counters"); c.Num("partial") > 0 || c.Num("requeues") > 0 || filter != "" {
		want["partial"], want["requeues"] = n, n
	}
	checkCounters(t, res, want)
	return res
}

// readHalf reads a block of which the backing file has only half. It returns 1 if the kernel
// reports the missing half as an error.
func readHalf(t testing.TB, l *loop, off int64) (failed int) {
	t.Helper()
	if err := unix.Ftruncate(l.back, off+blockSize/2); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pread(int(l.dev.Fd()), block(t), off); err != nil {
		return 1
	}
	return 0
}
