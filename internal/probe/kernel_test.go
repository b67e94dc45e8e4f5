package probe

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/vmlinux"
)

// TestRelocate relocates each program of each tool with the types that are looked up for it, and
// with all types of the kernel, and compares the results.
func TestRelocate(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	all, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(objectPath(t, "*"))
	if len(files) < 5 {
		t.Fatalf("found only these objects of tools: %q", files)
	}
	for _, file := range files {
		spec := readObject(t, file)
		k, err := NewKernel("")
		if err != nil {
			t.Fatal(err)
		}
		k.Prepare(spec)
		if k.found == nil {
			t.Errorf("%s: types were not found by name", file)
			continue
		}
		for name, prog := range spec.Programs {
			sameFixups(t, file+": "+name, prog, k.typesFor(prog), all)
		}
	}
}

// objectPath returns the path of the object of a tool for this machine.
func objectPath(t *testing.T, tool string) string {
	t.Helper()
	arch := map[string]string{"amd64": "x86"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return "../../tools/" + tool + "/bpf_" + arch + "_bpfel.o.gz"
}

func readObject(t *testing.T, path string) *ebpf.CollectionSpec {
	t.Helper()
	return decodeObject(t, inflateObject(t, path))
}

func inflateObject(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func decodeObject(t *testing.T, object []byte) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func sameFixups(t *testing.T, name string, prog *ebpf.ProgramSpec, some, all *btf.Spec) {
	t.Helper()
	var relos []*btf.CORERelocation
	for i := range prog.Instructions {
		if r := btf.CORERelocationMetadata(&prog.Instructions[i]); r != nil {
			relos = append(relos, r)
		}
	}
	if len(relos) == 0 {
		return
	}
	if some == nil {
		t.Errorf("%s: not all types of its %d relocations were looked up", name, len(relos))
		return
	}
	id := func(btf.Type) (btf.TypeID, error) { return 1, nil }
	got, err1 := btf.CORERelocate(relos, []*btf.Spec{some}, prog.ByteOrder, id)
	want, err2 := btf.CORERelocate(relos, []*btf.Spec{all}, prog.ByteOrder, id)
	if err := errors.Join(err1, err2); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%s: fixup of %v is %v, want %v", name, relos[i], &got[i], &want[i])
		}
	}
}

// TestTargetID compares the IDs that programs are attached by with the names in the BTF of the
// kernel.
func TestTargetID(t *testing.T) {
	k, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	all, err := k.Types()
	if err != nil {
		t.Fatal(err)
	}
	progs := map[string]*ebpf.ProgramSpec{
		"tp":     {Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch"},
		"iter":   {Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task"},
		"fentry": {Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "vfs_read"},
		"none":   {Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "no_such_function_x"},
	}
	k.Prepare(&ebpf.CollectionSpec{Programs: progs})
	for name, prog := range progs {
		id, ok, err := k.targetID(prog)
		if name == "none" {
			if ok || !errors.Is(err, ebpf.ErrNotSupported) {
				t.Errorf("%s: %d, %t, %v, want ErrNotSupported", name, id, ok, err)
			}
			continue
		}
		if err != nil || !ok {
			t.Errorf("%s: not found: %v", name, err)
			continue
		}
		typ, err := all.TypeByID(id)
		if _, want := tracingTarget(prog); err != nil || typ.TypeName() != want {
			t.Errorf("%s: type %d is %v, want %s (%v)", name, id, typ, want, err)
		}
	}
}

func TestSetFunctionIDs(t *testing.T) {
	call := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: -1}
	load := asm.LoadImm(asm.R1, 0, asm.DWord)
	for _, tt := range []struct {
		name string
		ids  map[string]btf.TypeID
		want [2]int64 // of the load and the call
		ok   bool
	}{
		{"existing function", map[string]btf.TypeID{"f": 7}, [2]int64{7, 7}, true},
		{"missing function", map[string]btf.TypeID{"f": 0}, [2]int64{0, int64(noFunction)}, true},
		{"variable", nil, [2]int64{0, -1}, false},
	} {
		insns := asm.Instructions{load.WithReference("f"), call.WithReference("f")}
		err := setFunctionIDs(insns, tt.ids)
		if got := [2]int64{insns[0].Constant, insns[1].Constant}; got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %x, %v; want %x", tt.name, got, err, tt.want)
		}
	}
}

// TestLockAll checks that programs are loaded one after the other if they need all types.
func TestLockAll(t *testing.T) {
	spec := &ebpf.ProgramSpec{}
	for _, tt := range []struct {
		kernel *Kernel
		locks  bool
	}{
		{&Kernel{}, true},
		{&Kernel{given: &btf.Spec{}}, false},
		{&Kernel{found: &vmlinux.Found{}}, false},
	} {
		unlock := tt.kernel.lockAll(spec)
		if isFree := tt.kernel.all.TryLock(); isFree == tt.locks {
			t.Errorf("%+v: locked: %v, want %v", tt.kernel, !isFree, tt.locks)
		} else if isFree {
			tt.kernel.all.Unlock()
		}
		unlock()
		if !tt.kernel.all.TryLock() {
			t.Error("still locked")
		}
	}
}
