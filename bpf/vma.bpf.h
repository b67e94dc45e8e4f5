/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __VMA_BPF_H
#define __VMA_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "loop.bpf.h"

/*
 * Finds the mapping (VMA) of an address in the kernel's tree of mappings.
 *
 * bpf_find_vma (5.17) takes the lock of the address space and, with interrupts disabled, needs an
 * irq_work to release it, so a program of a perf event can call it only once. Therefore the tree is
 * read without the lock, as page faults do (lock_vma_under_rcu, 6.4). A concurrent change can make
 * a lookup fail. It cannot make it return a mapping that does not contain the address, because the
 * caller reads the bounds from the mapping itself.
 */

#define VM_EXEC 0x4

/* Encoding of the nodes of a maple tree: lib/maple_tree.c, unchanged since 6.1. */
#define MAPLE_WORDS 32 /* of a node */
#define MAPLE_PIVOTS 15
#define MAPLE_DEPTH 8
#define MAPLE_NODE_MASK 255ULL

/* The height of a red-black tree of 65,530 mappings (vm.max_map_count). */
#define RB_DEPTH 33

/* Before 6.1 (524e00b36e8c) mappings were in a red-black tree. */
struct mm_struct___rb {
	struct rb_root mm_rb;
} __attribute__((preserve_access_index));

struct vm_area_struct___rb {
	struct rb_node vm_rb;
} __attribute__((preserve_access_index));

/*
 * The state of a search is in memory and volatile, so the verifier does not track its values, and
 * does not check each path through the loops separately.
 */
struct vma_search {
	__u64 address;
	volatile __u64 node;
	volatile __u32 slot;
	volatile __u32 first_slot; /* index of its word in the node */
	__u64 words[MAPLE_WORDS];
	volatile __u64 vma;
	__u64 start, end; /* of the mapping that was found */
};

static __always_inline __u32 maple_type(__u64 node)
{
	return node >> 3 & 15;
}

/*
 * Reads the node and returns the slot whose range contains the address. A pivot is the last address
 * of the range of a slot; unused pivots are 0.
 */
static __always_inline __u64 maple_slot(struct vma_search *s)
{
	/* In nodes of both types the pivots are between the parent and the slots. */
	const __u32 first = bpf_core_field_offset(struct maple_range_64, pivot) / 8;

	s->first_slot = bpf_core_field_offset(struct maple_range_64, slot) / 8;
	if (maple_type(s->node) == maple_arange_64)
		s->first_slot = bpf_core_field_offset(struct maple_arange_64, slot) / 8;
	if (bpf_probe_read_kernel(s->words, sizeof(s->words), (void *)(s->node & ~MAPLE_NODE_MASK)))
		return 0;
	s->slot = 0;
	for (__u32 i = 0; i < MAPLE_PIVOTS; i++) {
		__u64 pivot = s->words[(first + i) % MAPLE_WORDS];

		if (first + i >= s->first_slot || !pivot || pivot >= s->address)
			break;
		s->slot = i + 1;
	}
	return s->words[(s->first_slot + s->slot) % MAPLE_WORDS];
}

/* maple_step goes to the node below, and returns false at a leaf. */
static __always_inline bool maple_step(void *state, __u32 i)
{
	struct vma_search *s = state;
	__u64 slot = maple_slot(s);

	if (maple_type(s->node) == maple_leaf_64) {
		s->vma = slot;
		return false;
	}
	s->node = slot;
	return true;
}

static __always_inline struct vm_area_struct *vma_in_maple_tree(struct vma_search *s,
								const struct mm_struct *mm)
{
	const __u64 is_node = 2, kind = 3;

	s->vma = 0;
	s->node = (__u64)BPF_CORE_READ(mm, mm_mt.ma_root);
	if ((s->node & kind) == is_node)
		loop_while(MAPLE_DEPTH, maple_step, s);
	return (void *)s->vma;
}

static __always_inline struct vm_area_struct *vma_in_rb_tree(struct vma_search *s,
							     const struct mm_struct *mm)
{
	const struct mm_struct___rb *old = (const void *)mm;
	__u32 offset = bpf_core_field_offset(struct vm_area_struct___rb, vm_rb);

	s->node = (__u64)BPF_CORE_READ(old, mm_rb.rb_node);
	for (int i = 0; i < RB_DEPTH && s->node; i++) {
		struct vm_area_struct *vma = (void *)(s->node - offset);
		struct rb_node *node = (void *)s->node;

		if (s->address < BPF_CORE_READ(vma, vm_start))
			s->node = (__u64)BPF_CORE_READ(node, rb_left);
		else if (s->address < BPF_CORE_READ(vma, vm_end))
			return vma;
		else
			s->node = (__u64)BPF_CORE_READ(node, rb_right);
	}
	return NULL;
}

/* vma_find returns the mapping of the address s->address, NULL if it finds none. */
static __always_inline struct vm_area_struct *vma_find(struct vma_search *s, const struct mm_struct *mm)
{
	if (bpf_core_field_exists(mm->mm_mt))
		return vma_in_maple_tree(s, mm);
	return vma_in_rb_tree(s, mm);
}

/* The status change time of an inode in ns. Its fields were renamed in 6.6 and 6.11. */
struct inode___6_5 {
	struct timespec64 i_ctime;
} __attribute__((preserve_access_index));

struct inode___6_6 {
	struct timespec64 __i_ctime;
} __attribute__((preserve_access_index));

static __always_inline __u64 inode_changed_ns(const struct inode *inode)
{
	const __u64 second = 1000000000;
	/* From 6.13 on (4e40eff0b573) the highest bit is a flag: the time was queried. */
	const __u32 nanoseconds = 0x7fffffff;
	const struct inode___6_5 *old = (const void *)inode;
	const struct inode___6_6 *middle = (const void *)inode;

	if (bpf_core_field_exists(inode->i_ctime_sec))
		return BPF_CORE_READ(inode, i_ctime_sec) * second +
		       (BPF_CORE_READ(inode, i_ctime_nsec) & nanoseconds);
	if (bpf_core_field_exists(middle->__i_ctime))
		return BPF_CORE_READ(middle, __i_ctime.tv_sec) * second +
		       BPF_CORE_READ(middle, __i_ctime.tv_nsec);
	return BPF_CORE_READ(old, i_ctime.tv_sec) * second + BPF_CORE_READ(old, i_ctime.tv_nsec);
}

/*
 * The inode that /proc/PID/maps shows of a mapped file. From 6.7 on (def3ae83da02) that is the
 * inode of overlayfs, while the mapped file is on the underlying file system.
 */
static __always_inline struct inode *vma_inode(const struct file *file)
{
	const __u32 fmode_backing = 1 << 25;
	const struct backing_file *backing = (const void *)file;

	if (bpf_core_field_exists(backing->user_path) && BPF_CORE_READ(file, f_mode) & fmode_backing)
		return BPF_CORE_READ(backing, user_path.dentry, d_inode);
	return BPF_CORE_READ(file, f_inode);
}

#endif
