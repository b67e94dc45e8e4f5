package layout

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// EnumValue returns a value of a C enum.
//
// Returns btf.ErrNotFound if there is no such enum or value.
func EnumValue(types *btf.Spec, enum, name string) (uint64, error) {
	var e *btf.Enum
	if err := types.TypeByName(enum, &e); err != nil {
		return 0, fmt.Errorf("find enum %s: %w", enum, err)
	}
	for _, v := range e.Values {
		if v.Name == name {
			return v.Value, nil
		}
	}
	return 0, fmt.Errorf("find %s in enum %s: %w", name, enum, btf.ErrNotFound)
}

// CheckEnum compares the values of a C enum with Go constants.
//
// Returns ErrMismatch, and btf.ErrNotFound if the enum or a value is missing.
func CheckEnum(types *btf.Spec, enum string, want map[string]uint64) error {
	var errs []error
	for name, n := range want {
		v, err := EnumValue(types, enum, name)
		if err == nil && v != n {
			err = fmt.Errorf("%s of enum %s is %d, in Go %d: %w", name, enum, v, n, ErrMismatch)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
