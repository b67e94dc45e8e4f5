package probe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// oldEntries is how many entries a hash map may have where all of them are allocated
// at once.
const oldEntries = 1 << 16

// preallocate makes hash maps that grow as they are filled into ones that do not,
// where growing is not safe in tracing programs: before 6.1 (fba1a1c6c912) it was
// kmalloc, which the kernel warns of (94dacdbd5d2d). struct bpf_mem_alloc is what made
// it safe.
func preallocate(spec *ebpf.CollectionSpec, kernel *Kernel) {
	for _, m := range spec.Maps {
		if m.Type == ebpf.Hash && m.Flags&unix.BPF_F_NO_PREALLOC != 0 && !growsSafely(kernel) {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = min(m.MaxEntries, oldEntries)
		}
	}
}

func growsSafely(kernel *Kernel) bool {
	types, err := kernel.Types()
	if err != nil {
		return false
	}
	var alloc *btf.Struct
	return types.TypeByName("bpf_mem_alloc", &alloc) == nil
}
