/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWINDTABLE_BPF_H
#define __UNWINDTABLE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "loop.bpf.h"
#include "task.bpf.h"
#include "map.bpf.h"
#include "vma.bpf.h"

/*
 * Unwind tables. User space creates one per file (internal/unwind) and stores it in these maps. The
 * mapping that contains an address is found in the kernel, so a process needs no preparation, and a
 * table serves every process that maps the file, from its first instruction on.
 */

/* log2 of the size of a page. */
const volatile __u32 unwind_page_shift = 12;

#define UNWIND_FILES 16384
#define UNWIND_RULES 16384
#define UNWIND_SLABS 4096
#define UNWIND_SLAB_BLOCKS 512
#define UNWIND_LEAF_ROWS 128
#define UNWIND_NODE_ROWS 64

/* Maximum number of levels of a tree. User space reads it from the BTF of the object. */
enum unwind_limit {
	UNWIND_LEVELS = 5,
};

/* Maximum number of mappings per stack. */
#define STACK_MAPPINGS 16

enum stack_mapping_kind {
	MAPPING_FILE,
	MAPPING_ANON,
	MAPPING_VDSO
};

/*
 * The identity of a file. The change time distinguishes files that have the same inode number one
 * after another.
 */
struct unwind_file_id {
	__u64 inode;
	__u64 changed_ns;
	__u32 device; /* major << 20 | minor */
	__u32 kind; /* enum stack_mapping_kind */
};

/* An executable mapping with addresses of a stack. User space symbolizes addresses with it. */
struct stack_mapping {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	struct unwind_file_id file;
};

/* The table of a file: a tree of blocks. */
struct unwind_file {
	__u64 used_ns; /* last use by a program, CLOCK_MONOTONIC */
	__u32 root; /* block */
	__u32 levels; /* of the tree, including leaves; 0 for a file without a table */
	__u32 base; /* file offset of the first row */
	__u32 pad;
};

/*
 * The rows of a leaf: a rule is valid for file offsets from base + offset up to the next row's. The
 * base of a leaf is its key in the node above.
 */
struct unwind_leaf {
	__u16 offset[UNWIND_LEAF_ROWS];
	__u16 rule[UNWIND_LEAF_ROWS];
};

struct unwind_node {
	__u32 base[UNWIND_NODE_ROWS];
	__u32 block[UNWIND_NODE_ROWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNWIND_FILES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct unwind_file_id);
	__type(value, struct unwind_file);
} unwind_files SEC(".maps") USER_SPACE;

/* Blocks are allocated in slabs, on demand. */
struct unwind_slab {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_SLAB_BLOCKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct unwind_leaf));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_SLABS);
	__type(key, __u32);
	__array(values, struct unwind_slab);
} unwind_slabs SEC(".maps") USER_SPACE;

/*
 * A rule, from the lowest bits on: enum unwind_base and flags, 8 bits; 8 unused bits; then three
 * distances in units of 8 bytes, 16 bits each: of the caller's stack pointer from the base, and of
 * the saved frame pointer and of the return address from the caller's stack pointer. A distance of
 * 0 means not saved.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_RULES);
	__type(key, __u32);
	__type(value, __u64);
} unwind_rules SEC(".maps") USER_SPACE;

/* A mapping and the table of its file. */
struct unwind_mapping {
	struct stack_mapping mapping;
	__u32 root, levels, base;
	bool unread; /* user space has not read the file yet */
	__u8 pad[3];
};

/* The mappings that a walk has found, and the state of its searches. */
struct unwind_mappings {
	__u64 now_ns;
	__u32 count;
	__u32 at; /* index of the last one that was found */
	__u32 unknown; /* mappings of files that user space has not read */
	__u32 anonymous; /* mappings without a file */
	volatile __u32 block, base, levels; /* of a search in a tree */
	__u32 pad;
	struct vma_search search;
	struct unwind_mapping entries[STACK_MAPPINGS];
};

static __always_inline struct unwind_mapping *unwind_mapping_at(struct unwind_mappings *mappings, __u32 at)
{
	return &mappings->entries[at % STACK_MAPPINGS];
}

static __always_inline bool unwind_mapping_contains(const struct unwind_mapping *m, __u64 address)
{
	return address >= m->mapping.start && address < m->mapping.end;
}

static __always_inline void unwind_mapping_read(struct stack_mapping *mapping, struct vm_area_struct *vma,
						struct mm_struct *mm)
{
	struct file *file = BPF_CORE_READ(vma, vm_file);
	struct inode *inode = file ? vma_inode(file) : NULL;

	mapping->offset = 0;
	mapping->file.inode = 0;
	mapping->file.changed_ns = 0;
	mapping->file.device = 0;
	mapping->file.kind = MAPPING_ANON;
	if (inode) {
		mapping->offset = (__u64)BPF_CORE_READ(vma, vm_pgoff) << unwind_page_shift;
		mapping->file.inode = BPF_CORE_READ(inode, i_ino);
		mapping->file.changed_ns = inode_changed_ns(inode);
		mapping->file.device = BPF_CORE_READ(inode, i_sb, s_dev);
		mapping->file.kind = MAPPING_FILE;
	} else if (mapping->start == (__u64)BPF_CORE_READ(mm, context.vdso)) {
		mapping->file.kind = MAPPING_VDSO;
	}
}

/* Looks up the table of the mapped file. */
static __always_inline void unwind_mapping_set_table(struct unwind_mappings *mappings, struct unwind_mapping *m)
{
	const __u64 second = 1000000000;
	struct unwind_file *file;

	m->levels = 0;
	m->unread = false;
	if (m->mapping.file.kind == MAPPING_ANON) {
		mappings->anonymous++;
		return;
	}
	file = bpf_map_lookup_elem(&unwind_files, &m->mapping.file);
	if (!file) {
		m->unread = true;
		mappings->unknown++;
		return;
	}
	m->root = file->root;
	m->base = file->base;
	m->levels = file->levels;
	if (mappings->now_ns - file->used_ns > second)
		file->used_ns = mappings->now_ns;
}

/*
 * Adds the mapping that contains the address that is searched for, and returns false if there is none.
 * If there are too many, it replaces the last one.
 */
static __always_inline bool unwind_mapping_add(struct unwind_mappings *mappings)
{
	struct mm_struct *mm = BPF_CORE_READ(task_current(), mm);
	struct unwind_mapping *m;
	struct vma_search *search = &mappings->search;
	struct vm_area_struct *vma = vma_find(search, mm);

	if (!vma || !(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return false;
	BPF_CORE_READ_INTO(&search->start, vma, vm_start);
	BPF_CORE_READ_INTO(&search->end, vma, vm_end);
	if (search->address < search->start || search->address >= search->end)
		return false;
	if (mappings->count < STACK_MAPPINGS)
		mappings->count++;
	mappings->at = mappings->count - 1;
	m = unwind_mapping_at(mappings, mappings->at);
	m->mapping.start = search->start;
	m->mapping.end = search->end;
	unwind_mapping_read(&m->mapping, vma, mm);
	unwind_mapping_set_table(mappings, m);
	return true;
}

/*
 * unwind_mapping_find sets mappings->at to the executable mapping that contains the address, and
 * returns false if there is none.
 */
static __always_inline bool unwind_mapping_find(struct unwind_mappings *mappings, __u64 address)
{
	if (mappings->count && unwind_mapping_contains(unwind_mapping_at(mappings, mappings->at), address))
		return true;
	for (__u32 i = 0; i < STACK_MAPPINGS && i < mappings->count; i++) {
		if (unwind_mapping_contains(unwind_mapping_at(mappings, i), address)) {
			mappings->at = i;
			return true;
		}
	}
	mappings->search.address = address;
	return unwind_mapping_add(mappings);
}

static __always_inline void *unwind_block(__u32 number)
{
	__u32 slab = number / UNWIND_SLAB_BLOCKS, at = number % UNWIND_SLAB_BLOCKS;
	void *blocks = bpf_map_lookup_elem(&unwind_slabs, &slab);

	return blocks ? bpf_map_lookup_elem(blocks, &at) : NULL;
}

/* unwind_bit returns bit if value <= offset, otherwise 0. */
static __always_inline __u64 unwind_bit(__u64 bit, __u32 value, __u32 offset)
{
	__u64 above = (__u64)value - offset - 1;

	barrier_var(above); /* the compiler would replace the sign by a branch */
	return bit & ((__s64)above >> 63);
}

/*
 * unwind_row searches count sorted rows, a power of two, for the last one that is not above the
 * offset. The first one is not. There is no branch: the verifier would follow both directions, and
 * a CPU cannot predict them. Bits are added, because before 6.10 (0922c78f592c) the verifier has no
 * bounds for the result of |, which the compiler would use without the barrier.
 */
#define unwind_row(rows, count, offset)                                        \
	({                                                                     \
		__u64 at = 0;                                                  \
									       \
		for (__u64 bit = (count) / 2; bit; bit /= 2) {                 \
			at += unwind_bit(bit, (rows)[at + bit], offset);       \
			barrier_var(at);                                       \
		}                                                              \
		at;                                                            \
	})

/* Goes from a node to the block below it that covers the file offset. */
static __always_inline void unwind_descend(struct unwind_mappings *mappings, const struct unwind_node *node,
					   __u32 offset)
{
	__u64 at = unwind_row(node->base, UNWIND_NODE_ROWS, offset);

	mappings->base = node->base[at];
	mappings->block = node->block[at];
	mappings->levels--;
}

/* Returns the number of the rule for the offset, which is not below the first row of the leaf. */
static __always_inline __u32 unwind_leaf_rule(const struct unwind_leaf *leaf, __u32 offset)
{
	return leaf->rule[unwind_row(leaf->offset, UNWIND_LEAF_ROWS, offset)];
}

/* unwind_table_rule returns the rule for an address in the mapping, 0 if there is none. */
static __always_inline __u64 unwind_table_rule(struct unwind_mappings *mappings, const struct unwind_mapping *m,
					       __u64 address)
{
	__u64 offset = address - m->mapping.start + m->mapping.offset, *rule;
	const struct unwind_leaf *leaf = NULL;
	__u32 number;

	if (!m->levels || offset < m->base || offset > 0xffffffff)
		return 0;
	mappings->block = m->root;
	mappings->base = m->base;
	mappings->levels = m->levels;
	for (int i = 0; i < UNWIND_LEVELS; i++) {
		void *block = unwind_block(mappings->block);

		if (!block)
			return 0;
		if (mappings->levels <= 1) {
			leaf = block;
			break;
		}
		unwind_descend(mappings, block, offset);
	}
	if (!leaf)
		return 0;
	number = unwind_leaf_rule(leaf, offset - mappings->base);
	rule = bpf_map_lookup_elem(&unwind_rules, &number);
	return rule ? *rule : 0;
}

#endif
