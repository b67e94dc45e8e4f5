package probe

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// lacksRingBuffer reports whether the object's events need perf buffers, as the kernel has no
// ring buffer (before 5.8). It asks the kernel by creating one. Any other reason why that
// fails is left to the creation of the object's own map, which reports it.
func (k *Kernel) lacksRingBuffer(spec *ebpf.CollectionSpec) bool {
	m := spec.Maps["events"]
	if m == nil || m.Type != ebpf.RingBuf {
		return false
	}
	have := k.haveMapType
	if have == nil {
		have = features.HaveMapType
	}
	return errors.Is(have(ebpf.RingBuf), ebpf.ErrNotSupported)
}
