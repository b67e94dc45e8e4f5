package probe

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// lacksRingBuffer reports whether the object needs perf buffers because the kernel has no ring
// buffer (before Linux 5.8). It tests that by creating a ring buffer. If that fails for another
// reason, creating the object's own map will fail too and report it.
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
