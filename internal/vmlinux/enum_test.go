package vmlinux

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestEnumValue compares values of enums with and without a name with those from a decoder of all types.
func TestEnumValue(t *testing.T) {
	want := map[string]uint64{}
	all, err := btf.LoadKernelSpec()
	if errors.Is(err, btf.ErrNotSupported) || errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for typ, err := range all.All() {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := typ.(*btf.Enum); ok {
			for _, v := range e.Values {
				want[v.Name] = v.Value
			}
		}
	}
	for _, name := range []string{"BIO_TRACE_COMPLETION", "BPF_MAP_TYPE_HASH", "cpu_cgrp_id"} {
		got, err := EnumValue(name)
		if err != nil || uint64(got) != want[name] {
			t.Errorf("%s is %d, %v, want %d", name, got, err, want[name])
		}
	}
	if _, err := EnumValue("NO_SUCH_VALUE"); !errors.Is(err, errNoValue) {
		t.Errorf("error %v, want %v", err, errNoValue)
	}
}
