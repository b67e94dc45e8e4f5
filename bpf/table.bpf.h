/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TABLE_BPF_H
#define __TABLE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "epoch.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"

/*
 * A table of counters: one struct table_value per struct table_key. The tool defines both before it
 * includes this header; the key has no holes, and a multiple of 4 bytes. Members of the value of
 * type __u64 are counters, which user space sums over the CPUs. Other members describe the key, and
 * have the same value in all its entries.
 */

#ifndef TABLE_MAX_ENTRIES
#define TABLE_MAX_ENTRIES (1 << 20)
#endif

struct table_entry {
	struct table_key key;
	__u32 epoch;
	__u32 cpu;
};

_Static_assert(sizeof(struct table_entry) == sizeof(struct table_key) + 8,
	       "struct table_key must be a multiple of 4 bytes");

/*
 * Entries are allocated on demand, because most of the capacity is never used. User space changes
 * that for kernels where it is not safe, as for hists (hist.bpf.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TABLE_MAX_ENTRIES);
	__type(key, struct table_entry);
	__type(value, struct table_value);
} table SEC(".maps") USER_SPACE;

/* Zero initializer, in .rodata because of the 512-byte stack limit. */
const struct table_value table_empty = {};

/* The number of entries that were added to table so far. User space empties the map before it is full. */
__u64 table_added;

/* table_find for the interval with this epoch. */
static __always_inline struct table_value *table_find_in(const struct table_key *key, __u32 epoch)
{
	struct table_entry entry = {
		.key = *key,
		.epoch = epoch,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct table_value *value = bpf_map_lookup_elem(&table, &entry);

	if (value)
		return value;
	if (!bpf_map_update_elem(&table, &entry, &table_empty, BPF_NOEXIST))
		__sync_fetch_and_add(&table_added, 1);
	value = bpf_map_lookup_elem(&table, &entry);
	if (!value)
		lost_add(map_full);
	return value;
}

#ifdef TABLE_INDEXES
/*
 * The values of keys that are numbers below TABLE_INDEXES, per epoch, if user space sets
 * table_indexed (source.Table.Index). Indexing an array takes some 10 ns, a hash lookup of a key with
 * 56 bytes 60 ns.
 */
const volatile bool table_indexed = false;

struct table_array {
	struct table_value values[TABLE_INDEXES];
};

_Static_assert(sizeof(struct table_array) <= 32768, "no per-CPU value may be larger");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct table_array);
} table_arrays SEC(".maps") USER_SPACE;

/* The value with this index in this interval. The caller has checked that the index is in range. */
static __always_inline struct table_value *table_at(__u64 index)
{
	__u32 epoch = count_epoch;
	struct table_array *array = bpf_map_lookup_elem(&table_arrays, &epoch);

	barrier_var(index); /* the verifier needs the register that was compared */
	if (!array || index >= TABLE_INDEXES)
		return NULL;
	/* Otherwise clang adds to the pointer before the NULL check, which the verifier rejects. */
	barrier_var(array);
	return &array->values[index];
}
#endif

/*
 * table_find returns the value of the key on this CPU and in this interval, zeroed if it is new. If
 * the map is full it counts a lost event, and returns NULL. Another program can interrupt this one
 * and add the same entry: then the update fails, and the lookup finds that entry.
 */
static __always_inline struct table_value *table_find(const struct table_key *key)
{
	return table_find_in(key, count_epoch);
}

/*
 * table_add(value, member, n). The entry belongs to one CPU, but a program can be interrupted by
 * another one that counts the same, so the addition is atomic.
 */
#define table_add(value, member, n) __sync_fetch_and_add(&(value)->member, (n))

#endif
