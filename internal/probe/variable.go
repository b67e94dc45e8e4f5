package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// ErrTooLong is returned for a text that the BPF program has no room for.
var ErrTooLong = errors.New("too long")

// setVariable sets a constant of the programs. A text fills an array of char, and
// VAR_len where the object has that.
func setVariable(spec *ebpf.CollectionSpec, name string, val any) error {
	v := spec.Variables[name]
	if v == nil {
		return fmt.Errorf("the object has no variable %s", name)
	}
	text, ok := val.(string)
	if !ok {
		return v.Set(val)
	}
	if len(text) > int(v.Size()) {
		return fmt.Errorf("%d bytes where there is room for %d: %w", len(text), v.Size(), ErrTooLong)
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
