package stack

import "testing"

// TestReplaced maps files one after the other at the same address. Records of other CPUs come out of
// order.
func TestReplaced(t *testing.T) {
	ps := newProcesses(t)
	record := func(at uint64, inode uint64) {
		ps.RecordMmap(1, Mapping{Start: 0x1000, End: 0x2000, Inode: inode, Path: "/lib", Time: at})
	}
	record(10, 1)
	record(30, 2)
	record(20, 1)
	ps.RecordExec(1, 40)
	record(50, 3)
	for _, c := range []struct {
		addr, from, to uint64
		untilExec      bool
		want           bool
	}{
		{0x1800, 15, 25, false, false}, // the same file again
		{0x1800, 15, 35, false, true},
		{0x2000, 15, 35, false, false}, // another address
		{0x1800, 5, 15, false, true},   // the file before the first record is not known
		{0x1800, 35, 60, false, true},
		{0x1800, 35, 60, true, false}, // of another program
		{0x1800, 55, 60, true, false},
	} {
		if got := ps.mmaps.replaced(1, c.addr, c.from, c.to, c.untilExec); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	ps.RecordMmap(2, Mapping{Start: 0x1000, End: 0x2000, Inode: 1, Path: "/memfd:jit (deleted)", Time: 10})
	if ps.mmaps.replaced(2, 0x1800, 5, 20, false) {
		t.Error("code of a JIT compiler is replaced")
	}
	for i := range uint64(2 * maxChanges) {
		record(100+i, i%2)
	}
	if n := len(ps.mmaps.changes[1].byTime); n != maxChanges || !ps.Replaced(1, 0x1800, 0) {
		t.Errorf("%d changes are kept, want %d; dropped ones must count", n, maxChanges)
	}
}
