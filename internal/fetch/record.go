package fetch

import (
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
)

// addRecord adds the fields of the record of a tracepoint, which tracefs describes.
func (f *Finder) addRecord(s *compile.Scope, place *target.Place) error {
	fields, err := f.Fields(place)
	if err != nil {
		return err
	}
	for i := range fields {
		field := field{&fields[i]}
		if v, ok := field.variable(f.Types); ok {
			s.Vars[field.Name] = v
		}
	}
	return nil
}

// field is a field of a record.
type field struct{ *target.Field }

// variable returns the field as a variable, or false if it does not fit in a register.
func (f field) variable(types *btf.Spec) (compile.Var, bool) {
	kind, isData := strings.CutPrefix(f.Kind, "__data_loc ")
	kind, isRelative := strings.CutPrefix(kind, "__rel_loc ")
	elem := f.element(strings.TrimSpace(strings.TrimSuffix(kind, "[]")), types)
	switch {
	case isData:
		return compile.Located(&btf.Array{Type: elem}, f.Offset, 0), true
	case isRelative:
		return compile.Located(&btf.Array{Type: elem}, f.Offset, f.Offset+4), true
	case f.Elems >= 0:
		size, err := btf.Sizeof(elem)
		if err != nil || size == 0 {
			return compile.Var{}, false
		}
		return compile.Record(&btf.Array{Type: elem, Nelems: uint32(f.Size / size)}, f.Offset), true
	case f.Size > 8 || f.Size&(f.Size-1) != 0:
		return compile.Var{}, false
	}
	return compile.Record(elem, f.Offset), true
}

// element returns the type of the field or of its elements: the type of that name if it is known
// and not larger than a register, otherwise an integer of the field's size.
func (f field) element(name string, types *btf.Spec) btf.Type {
	if t, err := compile.TypeByName(name, types); err == nil {
		if size, err := btf.Sizeof(t); err == nil && size > 0 && (size <= f.Size || f.Elems >= 0) {
			return t
		}
	}
	t := &btf.Int{Name: name, Size: uint32(min(f.Size, 8))}
	if f.Elems >= 0 {
		t.Size = 1
	}
	if f.Signed {
		t.Encoding = btf.Signed
	}
	return t
}
