package blockio

import (
	"testing"
	"unsafe"

	"github.com/corescope/corescope/internal/tool"
)

// tailOf returns the bytes of a tail, with the names after it.
func tailOf(t Tail, names string) []byte {
	t.Path.Len = uint32(len(names))
	return append(append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t))...), names...)
}

func TestDecode(t *testing.T) {
	known := func(tail Tail) Tail {
		tail.Data, tail.Ino, tail.Path.Known = DataFile, 7, 1
		return tail
	}
	deleted, cut := known(Tail{}), known(Tail{})
	deleted.Path.Deleted, cut.Path.Truncated = 1, 1
	for _, c := range []struct {
		data  []byte
		file  string
		inode uint64
	}{
		{nil, "", 0},
		{tailOf(Tail{Data: DataJournal}, ""), "[journal]", 0},
		{tailOf(Tail{Data: 1}, ""), "", 0},
		{tailOf(Tail{Data: DataFile, Ino: 7}, ""), "", 7},
		{tailOf(known(Tail{}), "file\x00dir\x00"), "sda1:/dir/file", 7},
		{tailOf(deleted, "file\x00"), "sda1:/file (deleted)", 7},
		{tailOf(cut, "file\x00dir\x00"), ".../dir/file", 7},
	} {
		f := NewFile()
		f.File, f.Owner, f.OwnerPID = "previous", "previous", 1
		err := f.Decode(c.data, "sda1", &tool.Env{})
		if err != nil || string(f.File) != c.file || uint64(f.FileInode) != c.inode || f.Owner != "" || f.OwnerPID != 0 {
			t.Errorf("decoded %+v, %v, want file %q, inode %d, no owner", f, err, c.file, c.inode)
		}
	}
	f := NewFile()
	if err := f.Decode(tailOf(known(Tail{Path: known(Tail{}).Path}), "x")[:unsafe.Sizeof(Tail{})], "sda1", &tool.Env{}); err == nil {
		t.Error("a path without its names is accepted")
	}
}

func TestPlanFile(t *testing.T) {
	plan := tool.Plan{Variables: map[string]any{}, MapEntries: map[string]uint32{}}
	PlanFile(&plan, map[string]uint32{"more": 3})
	if len(plan.Settle) != 0 || plan.MapEntries["dirtiers"] != 0 {
		t.Errorf("plan %+v, want nothing for files", plan)
	}
	if err := plan.Features["want_file"].Complete(&plan); err != nil {
		t.Skipf("kernel symbols are unavailable: %v", err)
	}
	if len(plan.Settle) != 1 || plan.MapEntries["dirtiers"] == 0 || plan.MapEntries["more"] != 3 {
		t.Errorf("plan %+v, want the iterator and the map of dirtiers", plan)
	}
}
