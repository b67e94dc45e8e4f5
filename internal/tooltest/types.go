package tooltest

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// HasType reports whether the BTF of the kernel or of the module has a struct.
func HasType(t testing.TB, module, name string) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var found *btf.Struct
	if types.TypeByName(name, &found) == nil {
		return true
	}
	types, err = btf.LoadKernelModuleSpec(module)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return types.TypeByName(name, &found) == nil
}
