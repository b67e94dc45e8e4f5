package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// Kernel is the running kernel's types. Decoding them costs milliseconds and megabytes,
// so a run has one, which decodes once and only when asked.
type Kernel struct {
	cache *btf.Cache
	given *btf.Spec
}

// NewKernel returns the kernel whose types are in the BTF file, or the kernel's own
// without one.
func NewKernel(file string) (*Kernel, error) {
	k := &Kernel{cache: btf.NewCache()}
	if file == "" {
		return k, nil
	}
	spec, err := btf.LoadSpec(file)
	if err != nil {
		return nil, fmt.Errorf("read BTF: %w", err)
	}
	k.given = spec
	return k, nil
}

// Types returns the types, or ErrNoBTF where the kernel has none.
func (k *Kernel) Types() (*btf.Spec, error) {
	if k.given != nil {
		return k.given, nil
	}
	spec, err := k.cache.Kernel()
	if errors.Is(err, btf.ErrNotSupported) {
		return nil, ErrNoBTF
	}
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	return spec, nil
}
