package probe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// ErrTooLong is returned for a string that does not fit in its BPF variable.
var ErrTooLong = errors.New("too long")

// setVariable sets a constant of the programs. A string is stored in an array of char, and its
// length in NAME_len if the object has that variable. A slice is stored at the start of an array;
// the other elements are zero.
func setVariable(spec *ebpf.CollectionSpec, name string, val any) error {
	v := spec.Variables[name]
	if v == nil {
		return fmt.Errorf("find variable %s: the object does not contain it", name)
	}
	switch val := val.(type) {
	case []string:
		return setStrings(v, val)
	case []uint32:
		return setNumbers(v, val)
	case []uint64:
		return setNumbers(v, val)
	}
	text, ok := val.(string)
	if !ok {
		return v.Set(val)
	}
	if len(text) > int(v.Size()) {
		return fmt.Errorf("%w: %d bytes, the maximum is %d", ErrTooLong, len(text), v.Size())
	}
	buf := make([]byte, v.Size())
	copy(buf, text)
	if err := v.Set(buf); err != nil {
		return err
	}
	if length := spec.Variables[name+"_len"]; length != nil {
		return length.Set(uint32(len(text)))
	}
	return nil
}

func setNumbers[N uint32 | uint64](v *ebpf.VariableSpec, vals []N) error {
	if most := Capacity(v); len(vals) > most {
		return fmt.Errorf("%d values where there is room for %d: %w", len(vals), most, ErrTooLong)
	}
	buf, err := binary.Append(make([]byte, 0, v.Size()), binary.NativeEndian, vals)
	if err != nil {
		return err
	}
	return v.Set(buf[:v.Size()])
}

// setStrings sets an array of strings of a fixed size. Longer strings are truncated, and end with a NUL
// byte, as by bpf_probe_read_kernel_str().
func setStrings(v *ebpf.VariableSpec, vals []string) error {
	most := Capacity(v)
	if len(vals) > most {
		return fmt.Errorf("%d values where there is room for %d: %w", len(vals), most, ErrTooLong)
	}
	buf := make([]byte, v.Size())
	for i, val := range vals {
		size := len(buf) / most
		copy(buf[i*size:(i+1)*size-1], val)
	}
	return v.Set(buf)
}

// Capacity returns the number of elements of an array, 1 for any other variable, and 0 for nil.
func Capacity(v *ebpf.VariableSpec) int {
	if v == nil {
		return 0
	}
	if v.Type != nil {
		if array, ok := btf.UnderlyingType(v.Type.Type).(*btf.Array); ok {
			return int(array.Nelems)
		}
	}
	return 1
}
