package source

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// countsSpec returns an object with a map of counts. If added is set, its programs count the entries that they add.
func countsSpec(name string, entries uint32, added bool) *ebpf.CollectionSpec {
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{name: {MaxEntries: entries}}, Variables: map[string]*ebpf.VariableSpec{},
	}
	if added {
		spec.Variables[name+"_added"] = &ebpf.VariableSpec{}
	}
	return spec
}

// TestSizeOfTable checks the size of the map: each key can have an entry per epoch and CPU. The map never gets
// larger than in the object, and is smaller if it is emptied before it is full.
func TestSizeOfTable(t *testing.T) {
	const most = 1 << 20
	perKey := 2 * uint64(ebpf.MustPossibleCPU())
	emptied := (&filling{}).entries(&ebpf.MapSpec{MaxEntries: most}, ebpf.MustPossibleCPU())
	for _, tt := range []struct {
		entries uint32 // of the map in the object
		added   bool
		keys    uint64
		given   uint32 // by the plan
		want    uint32
	}{
		{entries: most, want: most},
		{entries: most, keys: 16, want: uint32(16 * perKey)},
		{entries: most, keys: most, want: most},
		{entries: most, added: true, want: emptied},
		{entries: most, added: true, keys: 16, want: uint32(16 * perKey)},
		{entries: most, added: true, keys: most, want: emptied},
		{entries: 1, added: true, want: 1},
		{entries: most, added: true, keys: 16, given: 5, want: 5},
	} {
		spec := countsSpec("table", tt.entries, tt.added)
		plan := tool.Plan{}
		if tt.given > 0 {
			plan.MapEntries = map[string]uint32{"table": tt.given}
		}
		if err := sizeCounts(spec, &plan, "table", newFilling(spec, "table", nil), tt.keys); err != nil {
			t.Fatal(err)
		}
		if got := plan.MapEntries["table"]; got != tt.want {
			t.Errorf("%+v: %d entries, want %d", tt, got, tt.want)
		}
	}
	var plan tool.Plan
	if err := sizeCounts(&ebpf.CollectionSpec{}, &plan, "table", nil, 1); err != nil || plan.MapEntries != nil {
		t.Errorf("without a map: %v, %v", err, plan.MapEntries)
	}
}

// TestEmptiedSize checks the sizes of maps that are emptied before they are full.
func TestEmptiedSize(t *testing.T) {
	for cpus, want := range map[int]uint32{1: 1 << 17, 2: 1 << 17, 3: 1 << 18, 4: 1 << 18, 16: 1 << 20, 17: 1 << 20, 1 << 20: 1 << 20} {
		if got := (&filling{}).entries(&ebpf.MapSpec{MaxEntries: 1 << 20}, cpus); got != want {
			t.Errorf("%d entries on %d CPUs, want %d", got, cpus, want)
		}
	}
}

// TestNotEmptied checks that a map is not emptied between reports if that would change times or readings.
func TestNotEmptied(t *testing.T) {
	times := countsSpec("table", 1, true)
	times.Variables["interval_end_ns"] = &ebpf.VariableSpec{}
	for name, f := range map[string]*filling{
		"times":        newFilling(times, "table", nil),
		"readings":     newFilling(countsSpec("table", 1, true), "table", []tool.Iterator{{Program: "read"}}),
		"without adds": newFilling(countsSpec("table", 1, false), "table", nil),
	} {
		if f != nil {
			t.Errorf("%s: the map is emptied", name)
		}
	}
	if newFilling(countsSpec("table", 1, true), "table", nil) == nil {
		t.Error("the map is not emptied")
	}
}

// TestDue checks when a map is emptied: if half of it is in use, unless this process has too many counts already.
func TestDue(t *testing.T) {
	for _, tt := range []struct {
		added, begun uint64
		kept         int
		want         bool
	}{
		{added: 0}, {added: 49}, {added: 50, want: true}, {added: 1000, want: true},
		{added: 149, begun: 100}, {added: 150, begun: 100, want: true},
		{added: 50, kept: mostKept - 1, want: true}, {added: 50, kept: mostKept},
	} {
		f := filling{begun: tt.begun, kept: func() int { return tt.kept }}
		if got := f.isDue(tt.added, 100); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// TestBegin checks that an epoch begins with the number of entries that have been added until then.
func TestBegin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make BPF maps")
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{".bss": {
			Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: make([]byte, 8)}},
		}},
		Variables: map[string]*ebpf.VariableSpec{"table_added": {Name: "table_added", SectionName: ".bss", Value: make([]byte, 8)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	s := &tool.Session{Objects: &probe.Objects{Variables: coll.Variables}}
	f := filling{name: "table"}
	for _, n := range []uint64{0, 7, 1 << 40} {
		if err := coll.Variables["table_added"].Set(n); err != nil {
			t.Fatal(err)
		}
		if err := f.begin(s); err != nil || f.begun != n {
			t.Errorf("%d entries when the epoch began, %v, want %d", f.begun, err, n)
		}
	}
}

// TestFillingOfStacks checks that the table of a tool with stacks is emptied before it is full, but not one of
// samples, whose size is known.
func TestFillingOfStacks(t *testing.T) {
	type none struct{}
	spec := countsSpec("table", 1<<20, true)
	all, sampled := Stacks[none, none, none]{}, Stacks[none, none, none]{due: &Due{}}
	sampled.MapEntries = map[string]uint32{"table": 5}
	for _, s := range []*Stacks[none, none, none]{&all, &sampled} {
		if err := s.setFilling(spec); err != nil {
			t.Fatal(err)
		}
	}
	usual := (&filling{}).entries(spec.Maps["table"], ebpf.MustPossibleCPU())
	if all.table.epochs.filling == nil || all.MapEntries["table"] != usual {
		t.Errorf("without samples: %d entries, emptied: %t", all.MapEntries["table"], all.table.epochs.filling != nil)
	}
	if sampled.table.epochs.filling != nil || sampled.MapEntries["table"] != 5 {
		t.Errorf("with samples: %d entries, emptied: %t", sampled.MapEntries["table"], sampled.table.epochs.filling != nil)
	}
}
