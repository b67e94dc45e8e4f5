package probe

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// oldEntries is how many entries a hash map may have where all of them are allocated
// at once.
const oldEntries = 1 << 16

// preallocate makes hash maps that grow as they are filled into ones that do not, where
// tracing programs cannot rely on growing.
func preallocate(spec *ebpf.CollectionSpec, kernel *Kernel) {
	for _, m := range spec.Maps {
		if m.Type == ebpf.Hash && m.Flags&unix.BPF_F_NO_PREALLOC != 0 && !growsSafely(kernel) {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = min(m.MaxEntries, oldEntries)
		}
	}
}

// growsSafely tells whether entries can be allocated at any place. Before 6.1
// (fba1a1c6c912) that was kmalloc, unsafe there, and the kernel warned of it
// (94dacdbd5d2d); struct bpf_mem_alloc has made it safe. It keeps few entries at hand and
// gets more by an irq_work, which with PREEMPT_RT is a thread's: it comes too late for
// many new entries in a row, and they fail. There a spinlock is an rt_mutex.
func growsSafely(kernel *Kernel) bool {
	var alloc, lock *btf.Struct
	if kernel.TypeByName("bpf_mem_alloc", &alloc) != nil || kernel.TypeByName("spinlock", &lock) != nil {
		return false
	}
	return !slices.ContainsFunc(lock.Members, func(m btf.Member) bool { return m.Name == "lock" })
}
