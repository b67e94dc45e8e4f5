package probe

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// preallocatedMax is the maximum number of entries of a hash map whose entries are all allocated
// when it is created.
const preallocatedMax = 1 << 16

// preallocate makes the kernel allocate all entries of hash maps in advance if tracing programs
// cannot allocate them reliably. It also limits their number.
func preallocate(spec *ebpf.CollectionSpec, kernel *Kernel) {
	for _, m := range spec.Maps {
		if m.Type == ebpf.Hash && m.Flags&unix.BPF_F_NO_PREALLOC != 0 && !canAllocate(kernel) {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = min(m.MaxEntries, preallocatedMax)
		}
	}
}

// canAllocate reports whether tracing programs can allocate map entries in any context.
//
// Kernels before 6.1 (fba1a1c6c912) use kmalloc, which is unsafe in tracing programs, and warn
// about it (94dacdbd5d2d). Since then struct bpf_mem_alloc makes it safe. It keeps a few free
// entries and refills them in an irq_work. With PREEMPT_RT the irq_work runs in a thread, which is
// too late if many entries are added in a row, and the allocation fails. In such a kernel, a
// spinlock contains an rt_mutex (member lock).
func canAllocate(kernel *Kernel) bool {
	var alloc, lock *btf.Struct
	if kernel.TypeByName("bpf_mem_alloc", &alloc) != nil || kernel.TypeByName("spinlock", &lock) != nil {
		return false
	}
	return !slices.ContainsFunc(lock.Members, func(m btf.Member) bool { return m.Name == "lock" })
}
