package layout

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// specOf returns BTF with the types.
func specOf(t *testing.T, types ...btf.Type) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestCheckEnum(t *testing.T) {
	types := specOf(t, &btf.Enum{Name: "color", Size: 4, Values: []btf.EnumValue{{Name: "RED", Value: 0}, {Name: "BLUE", Value: 7}}})
	for _, tt := range []struct {
		enum string
		want map[string]uint64
		err  error
	}{
		{"color", map[string]uint64{"RED": 0, "BLUE": 7}, nil},
		{"color", map[string]uint64{"RED": 0, "BLUE": 1}, ErrMismatch},
		{"color", map[string]uint64{"GREEN": 1}, btf.ErrNotFound},
		{"shape", map[string]uint64{"RED": 0}, btf.ErrNotFound},
	} {
		if err := CheckEnum(types, tt.enum, tt.want); !errors.Is(err, tt.err) {
			t.Errorf("enum %s, %v: %v, want %v", tt.enum, tt.want, err, tt.err)
		}
	}
}

func TestTail(t *testing.T) {
	type fixed struct{ A uint32 }
	s := structOf(t, "event", member{"a", u32}, member{"data", array(&btf.Int{Name: "char", Size: 1}, 12)})
	if n := Tail(s, reflect.TypeFor[fixed]()); n != 12 {
		t.Errorf("the tail has %d bytes, want 12", n)
	}
	if n := Tail(structOf(t, "event", member{"a", u32}), reflect.TypeFor[fixed]()); n != 0 {
		t.Errorf("a struct without a tail has one of %d bytes", n)
	}
}
