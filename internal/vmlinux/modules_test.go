package vmlinux

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// record appends a type: its header, and the data that follows.
func record(b []byte, name uint32, k kind, members int, size uint32, rest ...uint32) []byte {
	for _, word := range append([]uint32{name, uint32(k)<<24 | uint32(members), size}, rest...) {
		b = order.AppendUint32(b, word)
	}
	return b
}

func file(types []byte, text string) []byte {
	b := append(order.AppendUint16(nil, 0xeb9f), 1, 0)
	for _, word := range []int{24, 0, len(types), len(types), len(text)} {
		b = order.AppendUint32(b, uint32(word))
	}
	return append(append(b, types...), text...)
}

// kernelAndModule returns the BTF of a kernel with an int and struct inner { u32 a; }, and that of a module with
// struct outer { struct inner in; struct inner *to; struct own x; }, struct own { u32 a; } and a function.
func kernelAndModule() (kernel, module []byte) {
	const kernelText, moduleText = "\x00u32\x00inner\x00a\x00", "outer\x00in\x00to\x00own\x00call\x00"
	at := func(name string) uint32 {
		if i := strings.Index(kernelText, "\x00"+name+"\x00"); i >= 0 {
			return uint32(i + 1)
		}
		return uint32(len(kernelText) + strings.Index(moduleText, name+"\x00"))
	}
	types := record(nil, at("u32"), kindInt, 0, 4, 32)                  // 1
	types = record(types, at("inner"), kindStruct, 1, 4, at("a"), 1, 0) // 2
	own := record(nil, at("outer"), kindStruct, 3, 24, at("in"), 2, 0, at("to"), 4, 64, at("own"), 5, 128)
	own = record(own, 0, kindPtr, 0, 2)                           // 4
	own = record(own, at("own"), kindStruct, 1, 4, at("a"), 1, 0) // 5
	own = record(own, 0, kindFuncProto, 0, 1)                     // 6
	own = record(own, at("call"), kindFunc, 0, 6)                 // 7
	return file(types, kernelText), file(own, moduleText)
}

func TestModule(t *testing.T) {
	kernel, module := kernelAndModule()
	base, err1 := parse(kernel)
	b, err2 := parse(module)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := base.index(); err != nil {
		t.Fatal(err)
	}
	b.base = base
	whole, err := btf.LoadSpecFromReader(bytes.NewReader(kernel))
	if err != nil {
		t.Fatal(err)
	}
	all, err := btf.LoadSplitSpecFromReader(bytes.NewReader(module), whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		names     map[string]bool
		types     int
		functions bool
	}{
		{map[string]bool{"outer": true, "inner": true}, 1, false}, // inner is a type of the kernel
		{map[string]bool{"in": true, "none": true}, 0, false},     // the name of a member
		{map[string]bool{"call": true}, 0, true},
		{map[string]bool{"call": true, "own": true}, 1, true},
	} {
		found := &InModules{}
		if err := b.find(tt.names, found); err != nil || len(found.Types) != tt.types || found.Functions != tt.functions {
			t.Fatalf("%v: %+v, %v", tt.names, found, err)
		}
		for _, name := range []string{"outer", "own"} {
			if !tt.names[name] {
				continue
			}
			var got, want *btf.Struct
			if err := errors.Join(found.Types[0].TypeByName(name, &got), all.TypeByName(name, &want)); err != nil {
				t.Fatal(err)
			}
			sameStruct(t, name, got, want)
		}
	}
}

// TestFindInModules checks that types found in the loaded modules are equal to those from a decoder of
// all types.
func TestFindInModules(t *testing.T) {
	files, _ := filepath.Glob(directory + "/*")
	module := ""
	for _, path := range files {
		if filepath.Base(path) != "vmlinux" {
			module = filepath.Base(path)
		}
	}
	if module == "" {
		t.Skipf("no loaded module has types: %v", files)
	}
	all, err := btf.LoadKernelModuleSpec(module)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for typ, err := range all.All() {
		want, ok := typ.(*btf.Struct)
		if err != nil || !ok || want.Name == "" || compared == 10 {
			continue
		}
		found, err := FindInModules(map[string]bool{want.Name: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, types := range found.Types {
			var got *btf.Struct
			if types.TypeByName(want.Name, &got) == nil && got.Size == want.Size {
				sameStruct(t, want.Name, got, want)
				compared++
			}
		}
	}
	t.Logf("compared %d types of %s", compared, module)
}
