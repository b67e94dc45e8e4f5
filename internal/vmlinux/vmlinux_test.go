package vmlinux

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var some = map[string]bool{
	"task_struct": true, "sock": true, "request": true, "enum_that_is_not": true, "cgroup_subsys_id": true,
	"btf_trace_sched_switch": true, "bpf_iter_task": true, "pid_t": true,
}

func findSome(t testing.TB) *Found {
	t.Helper()
	found, err := Find(some)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestFind compares the types with those from a decoder of all types.
func TestFind(t *testing.T) {
	found := findSome(t)
	all, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"task_struct", "sock", "request"} {
		var got, want *btf.Struct
		if err := errors.Join(found.Types.TypeByName(name, &got), all.TypeByName(name, &want)); err != nil {
			t.Error(err)
			continue
		}
		sameStruct(t, name, got, want)
		id, err := all.TypeID(want)
		if ids := found.Struct(name); err != nil || len(ids) != 1 || ids[0] != id {
			t.Errorf("IDs of struct %s are %v, want %d (%v)", name, ids, id, err)
		}
	}
	var got, want *btf.Enum
	if err := errors.Join(found.Types.TypeByName("cgroup_subsys_id", &got), all.TypeByName("cgroup_subsys_id", &want)); err != nil {
		t.Fatal(err)
	}
	for i, v := range want.Values {
		if got.Values[i] != v {
			t.Errorf("value %d is %v, want %v", i, got.Values[i], v)
		}
	}
}

// sameStruct compares structs, including the structs that they contain.
func sameStruct(t *testing.T, name string, got, want *btf.Struct) {
	t.Helper()
	if got.Size != want.Size || len(got.Members) != len(want.Members) {
		t.Errorf("%s has %d bytes and %d members, want %d and %d", name, got.Size, len(got.Members), want.Size, len(want.Members))
		return
	}
	for i, w := range want.Members {
		g := got.Members[i]
		if g.Name != w.Name || g.Offset != w.Offset || g.BitfieldSize != w.BitfieldSize {
			t.Errorf("%s: member %d is %s at %d, want %s at %d", name, i, g.Name, g.Offset, w.Name, w.Offset)
		}
		gs, err1 := btf.Sizeof(g.Type)
		ws, err2 := btf.Sizeof(w.Type)
		if gs != ws || (err1 == nil) != (err2 == nil) {
			t.Errorf("%s.%s: size %d, want %d", name, w.Name, gs, ws)
		}
		inner, ok := btf.UnderlyingType(w.Type).(*btf.Struct)
		if !ok {
			continue
		}
		if same, ok := btf.UnderlyingType(g.Type).(*btf.Struct); ok {
			sameStruct(t, name+"."+w.Name, same, inner)
		} else {
			t.Errorf("%s.%s is %s, want a struct", name, w.Name, g.Type)
		}
	}
}

// TestIDs compares type IDs, which programs are attached by.
func TestIDs(t *testing.T) {
	found := findSome(t)
	all, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var fn *btf.Func
	var def *btf.Typedef
	if err := errors.Join(all.TypeByName("bpf_iter_task", &fn), all.TypeByName("btf_trace_sched_switch", &def)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		typ btf.Type
		got []btf.TypeID
	}{{fn, found.Func("bpf_iter_task")}, {def, found.Typedef("btf_trace_sched_switch")}} {
		want, err := all.TypeID(tt.typ)
		if err != nil || len(tt.got) != 1 || tt.got[0] != want {
			t.Errorf("%s has the IDs %v, want %d (%v)", tt.typ, tt.got, want, err)
		}
	}
	if missing := found.Missing(some); len(missing) != 1 || !missing["enum_that_is_not"] {
		t.Errorf("missing are %v", missing)
	}
}

func TestBroken(t *testing.T) {
	raw, free, err := open(directory + "/vmlinux")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	short := append([]byte(nil), raw[:1<<16]...)
	if _, err := newIndex(short); !errors.Is(err, errFormat) {
		t.Errorf("a file that is cut short: %v", err)
	}
	whole := append([]byte(nil), raw...)
	whole[24+7] = 31 // the first type's kind
	if _, err := newIndex(whole); !errors.Is(err, errFormat) {
		t.Errorf("an unknown kind: %v", err)
	}
}

func TestHasString(t *testing.T) {
	b := &blob{strings: []byte("\x00one\x00longer than eight\x00\x00last\x00")}
	for name, want := range map[string]bool{
		"one": true, "on": false, "longer than eight": true, "longer than nine": false, "last": true, "ast": false,
	} {
		if got := b.hasString(map[string]bool{name: true}); got != want {
			t.Errorf("%q is there: %t", name, got)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	findSome(b)
	b.ReportAllocs()
	for b.Loop() {
		findSome(b)
	}
}
