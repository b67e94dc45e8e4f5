package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// ErrTooLong is returned for a string that does not fit in its BPF variable.
var ErrTooLong = errors.New("too long")

// setVariable sets a constant of the programs. A string is stored in an array of char, and its
// length in NAME_len if the object has that variable.
func setVariable(spec *ebpf.CollectionSpec, name string, val any) error {
	v := spec.Variables[name]
	if v == nil {
		return fmt.Errorf("find variable %s: the object does not contain it", name)
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
