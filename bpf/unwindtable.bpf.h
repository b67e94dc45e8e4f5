/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWINDTABLE_BPF_H
#define __UNWINDTABLE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"
#include "map.bpf.h"
#include "vma.bpf.h"

/*
 * Unwind tables: user space makes one of each file (internal/unwind) and puts it here. The mapping
 * that holds an address is found in the kernel, so a process needs no preparation, and a table serves
 * every process that maps the file, from its first instruction on.
 */

/* log2 of the size of a page. */
const volatile __u32 unwind_page_shift = 12;

#define UNWIND_FILES 16384
#define UNWIND_RULES 16384
#define UNWIND_SLABS 4096
#define UNWIND_SLAB_BLOCKS 512
#define UNWIND_LEAF_ROWS 128
#define UNWIND_NODE_ROWS 64
#define UNWIND_LEVELS 5

/* The mappings that are kept of a stack. */
#define STACK_MAPPINGS 16

enum stack_mapping_kind {
	MAPPING_FILE,
	MAPPING_ANON,
	MAPPING_VDSO
};

/* How programs identify a file. The change time tells a new file from one whose inode number it has. */
struct unwind_file_id {
	__u64 inode;
	__u64 changed_ns;
	__u32 device; /* major << 20 | minor */
	__u32 kind; /* enum stack_mapping_kind */
};

/* An executable mapping that a stack leads through. User space names addresses by it. */
struct stack_mapping {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	struct unwind_file_id file;
};

/* A file's table, a tree of blocks. */
struct unwind_file {
	__u64 used_ns; /* when a program used it last, CLOCK_MONOTONIC */
	__u32 root; /* block */
	__u32 levels; /* of the tree, the leaves included; 0 is a file without a table */
	__u32 base; /* file offset of the first row */
	__u32 pad;
};

/*
 * A leaf has rows: a rule is for the file offsets from base + offset to the next row's. The base of
 * a leaf is its key in the node above.
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

/* Blocks are allocated in slabs, as tables are added. */
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
 * From the lowest bits on: the base, 8 bits, 8 unused; then three distances in units of 8
 * bytes, 16 bits each: of the caller's stack pointer from the base, of the saved frame
 * pointer from that, and of the return address. 0 is what was not saved.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_RULES);
	__type(key, __u32);
	__type(value, __u64);
} unwind_rules SEC(".maps") USER_SPACE;

/* A mapping and the table of its file. */
struct unwind_place {
	struct stack_mapping mapping;
	__u32 root, levels, base;
	__u32 pad;
};

/* The places that a walk has come through, and the state of its searches. */
struct unwind_places {
	__u64 now_ns;
	__u32 count;
	__u32 at; /* the last one that was found */
	__u32 unknown; /* places whose file user space has not looked at */
	volatile __u32 low, high; /* of a search */
	volatile __u32 block, base, levels; /* of a search in a tree */
	struct vma_search search;
	struct unwind_place place[STACK_MAPPINGS];
};

static __always_inline struct unwind_place *unwind_place_at(struct unwind_places *places, __u32 at)
{
	return &places->place[at % STACK_MAPPINGS];
}

static __always_inline bool unwind_place_holds(const struct unwind_place *place, __u64 address)
{
	return address >= place->mapping.start && address < place->mapping.end;
}

static __always_inline void unwind_place_read(struct stack_mapping *mapping, struct vm_area_struct *vma,
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

/* Finds the table of the place's file. */
static __always_inline void unwind_place_table(struct unwind_places *places, struct unwind_place *place)
{
	const __u64 second = 1000000000;
	struct unwind_file *file;

	place->levels = 0;
	if (place->mapping.file.kind == MAPPING_ANON)
		return;
	file = bpf_map_lookup_elem(&unwind_files, &place->mapping.file);
	if (!file) {
		places->unknown++;
		return;
	}
	place->root = file->root;
	place->base = file->base;
	place->levels = file->levels;
	if (places->now_ns - file->used_ns > second)
		file->used_ns = places->now_ns;
}

/* Adds the mapping that holds the address; where there are too many, in the place of the last one. */
static __always_inline struct unwind_place *unwind_place_add(struct unwind_places *places, __u64 address)
{
	struct mm_struct *mm = BPF_CORE_READ(task_current(), mm);
	struct unwind_place *place;
	struct vm_area_struct *vma;
	__u64 start, end;

	places->search.address = address;
	vma = vma_find(&places->search, mm);
	if (!vma || !(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return NULL;
	start = BPF_CORE_READ(vma, vm_start);
	end = BPF_CORE_READ(vma, vm_end);
	if (address < start || address >= end)
		return NULL;
	if (places->count < STACK_MAPPINGS)
		places->count++;
	places->at = places->count - 1;
	place = unwind_place_at(places, places->at);
	place->mapping.start = start;
	place->mapping.end = end;
	unwind_place_read(&place->mapping, vma, mm);
	unwind_place_table(places, place);
	return place;
}

/* unwind_place_find returns the executable mapping that holds the address, NULL if there is none. */
static __always_inline struct unwind_place *unwind_place_find(struct unwind_places *places, __u64 address)
{
	struct unwind_place *place = unwind_place_at(places, places->at);

	if (places->count && unwind_place_holds(place, address))
		return place;
	for (__u32 i = 0; i < STACK_MAPPINGS && i < places->count; i++) {
		place = unwind_place_at(places, i);
		if (unwind_place_holds(place, address)) {
			places->at = i;
			return place;
		}
	}
	return unwind_place_add(places, address);
}

static __always_inline void *unwind_block(__u32 number)
{
	__u32 slab = number / UNWIND_SLAB_BLOCKS, at = number % UNWIND_SLAB_BLOCKS;
	void *blocks = bpf_map_lookup_elem(&unwind_slabs, &slab);

	return blocks ? bpf_map_lookup_elem(blocks, &at) : NULL;
}

static __always_inline __u32 unwind_middle(const struct unwind_places *places)
{
	return (places->low + places->high) / 2;
}

/* Goes from a node to the block below that has the file offset. */
static __always_inline void unwind_descend(struct unwind_places *places, const struct unwind_node *node,
					   __u32 offset)
{
	__u32 at;

	places->low = 1;
	places->high = UNWIND_NODE_ROWS;
	for (int i = 0; i < 7; i++) {
		if (places->low >= places->high)
			break;
		at = unwind_middle(places);
		if (node->base[at % UNWIND_NODE_ROWS] <= offset)
			places->low = at + 1;
		else
			places->high = at;
	}
	at = (places->low - 1) % UNWIND_NODE_ROWS;
	places->base = node->base[at];
	places->block = node->block[at];
	places->levels--;
}

/* The number of the rule in the leaf, whose first row is not above the offset. */
static __always_inline __u32 unwind_row_of(struct unwind_places *places, const struct unwind_leaf *leaf,
					   __u32 offset)
{
	__u32 at;

	places->low = 1;
	places->high = UNWIND_LEAF_ROWS;
	for (int i = 0; i < 8; i++) {
		if (places->low >= places->high)
			break;
		at = unwind_middle(places);
		if (leaf->offset[at % UNWIND_LEAF_ROWS] <= offset)
			places->low = at + 1;
		else
			places->high = at;
	}
	return leaf->rule[(places->low - 1) % UNWIND_LEAF_ROWS];
}

/* unwind_table_rule returns the rule for the address in the place, 0 if there is none. */
static __always_inline __u64 unwind_table_rule(struct unwind_places *places, const struct unwind_place *place,
					       __u64 address)
{
	__u64 offset = address - place->mapping.start + place->mapping.offset, *rule;
	const struct unwind_leaf *leaf = NULL;
	__u32 number;

	if (!place->levels || offset < place->base || offset > 0xffffffff)
		return 0;
	places->block = place->root;
	places->base = place->base;
	places->levels = place->levels;
	for (int i = 0; i < UNWIND_LEVELS; i++) {
		void *block = unwind_block(places->block);

		if (!block)
			return 0;
		if (places->levels <= 1) {
			leaf = block;
			break;
		}
		unwind_descend(places, block, offset);
	}
	if (!leaf)
		return 0;
	number = unwind_row_of(places, leaf, offset - places->base);
	rule = bpf_map_lookup_elem(&unwind_rules, &number);
	return rule ? *rule : 0;
}

#endif
